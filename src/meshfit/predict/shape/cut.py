"""Which blocks tensor parallelism divides, by engine."""

from meshfit.profile import EngineProfile
from meshfit.workload.blocks.block import Block


def cuts_mixers(profile: EngineProfile) -> bool:
    """Whether the engine's tensor parallelism divides state-space and linear-attention layers, of
    which transformers' plans leave all weights whole."""
    return "mixer_heads_divisible" in profile.rules


def is_cut(block: Block, hidden_size: int, profile: EngineProfile) -> bool:
    """Whether tensor parallelism divides the weights of ``block``."""
    has_split = any(tensor.split is not None for tensor in block.tensors(hidden_size))
    return has_split or (block.mixes_tokens and cuts_mixers(profile))
