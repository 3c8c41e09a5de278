"""Blocks that Megatron-Core computes with the kernels that PyTorch models use: state-space mixers and
linear attention. Tensor parallelism cuts all of their tensors by heads (``MambaMixer``)."""

from meshfit.predict.memory.blocks import block_memory
from meshfit.predict.memory.megatron.settings import LayerSettings
from meshfit.predict.memory.megatron.tensors import Saved, Split
from meshfit.predict.shape.saved import SPLITS as PYTORCH_SPLITS
from meshfit.predict.shape.saved import Split as PyTorchSplit
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.compressed import CompressedAttentionSpec


def mixer_tensors(block: Block, settings: LayerSettings) -> tuple[Saved, ...]:
    """Behind the norm, whose output the block's first linear keeps."""
    return tuple(
        Saved(name=t.name, bytes_per_token=t.bytes_per_token, split=_split(block, t.split))
        for t in block_memory(block, settings.basis).saved
        if not t.name.endswith(".input")
    )


def mixer_gradients(block: Block, settings: LayerSettings) -> tuple[Saved, ...]:
    """Alive at once in its backward."""
    gradients = block_memory(block, settings.basis).gradients
    return tuple(
        Saved(name="d_mixer", bytes_per_token=getattr(gradients, split), split=_split(block, split))
        for split in PYTORCH_SPLITS
    )


def _split(block: Block, split: PyTorchSplit) -> Split:
    match split:
        case "traded" | "received":  # of softmax attention and of experts, which are no mixers
            return "tp"
        case "whole" if not isinstance(block, CompressedAttentionSpec):
            return "tp"
        case _:
            return split
