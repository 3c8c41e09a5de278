"""Mamba, Falcon-Mamba and Mamba-2: a state-space mixer in every layer and nothing else."""

import math

from meshfit.errors import InputError
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.state_space import Mamba2Spec, MambaSpec
from meshfit.workload.families.keys import (
    MAX_HEADS,
    MAX_LAYERS,
    MAX_TOKENS,
    MAX_VOCABULARY,
    MAX_WIDTH,
    Config,
    flag,
    optional_whole_number,
    shown,
    whole_number,
)
from meshfit.workload.model import LayerSpec, ModelSpec, Names

MAX_KERNEL = 2**10

NAMES = Names(
    layers="backbone.layers", embedding="backbone.embeddings", final_norm="backbone.norm_f"
)


def read(name: str, config: Config) -> ModelSpec:
    """Mamba, with the defaults of transformers' ``MambaConfig``.

    Raises:
        InputError: a key cannot be right.
    """
    return _model(name, config, "mamba", vocab_size=50280, hidden_size=768, layers=32, tie=True)


def read_falcon(name: str, config: Config) -> ModelSpec:
    """Falcon-Mamba: Mamba with norms without parameters inside. Raises as ``read``."""
    return _model(
        name, config, "falcon_mamba", vocab_size=50280, hidden_size=768, layers=32, tie=True
    )


def read_2(name: str, config: Config) -> ModelSpec:
    """Mamba-2, with the defaults of transformers' ``Mamba2Config``. Raises as ``read``."""
    return _model(name, config, "mamba2", vocab_size=32768, hidden_size=4096, layers=64, tie=False)


def _model(
    name: str,
    config: Config,
    model_type: str,
    *,
    vocab_size: int,
    hidden_size: int,
    layers: int,
    tie: bool,
) -> ModelSpec:
    hidden = whole_number(config, "hidden_size", hidden_size)
    mixer: Block = _mamba2(config, hidden) if model_type == "mamba2" else _mamba(config, hidden)
    layer = LayerSpec(blocks=(("mixer", mixer),), norms=("norm",))
    return ModelSpec(
        name=name,
        model_type=model_type,
        hidden_size=hidden,
        vocab_size=whole_number(config, "vocab_size", vocab_size, maximum=MAX_VOCABULARY),
        layers=(layer,) * whole_number(config, "num_hidden_layers", layers, maximum=MAX_LAYERS),
        norm="rms_norm",
        tie_word_embeddings=flag(config, "tie_word_embeddings", tie),
        max_position_embeddings=MAX_TOKENS,
        names=NAMES,
        config=config,
    )


def _mamba(config: Config, hidden_size: int) -> MambaSpec:
    """A stated ``intermediate_size`` goes before ``expand``, as in Falcon-Mamba-7B."""
    return MambaSpec(
        inner_size=optional_whole_number(config, "intermediate_size")
        or expanded(config, "expand", hidden_size),
        state_size=whole_number(config, "state_size", 16),
        conv_kernel=whole_number(config, "conv_kernel", 4, maximum=MAX_KERNEL),
        time_step_rank=time_step_rank(config, "time_step_rank", hidden_size),
        conv_bias=flag(config, "use_conv_bias", True),
        proj_bias=flag(config, "use_bias", False),
    )


def _mamba2(config: Config, hidden_size: int) -> Mamba2Spec:
    mixer = Mamba2Spec(
        num_heads=whole_number(config, "num_heads", 128, maximum=MAX_HEADS),
        head_dim=whole_number(config, "head_dim", 64),
        state_size=whole_number(config, "state_size", 128),
        num_groups=whole_number(config, "n_groups", 8, maximum=MAX_HEADS),
        conv_kernel=whole_number(config, "conv_kernel", 4, maximum=MAX_KERNEL),
        conv_bias=flag(config, "use_conv_bias", True),
        proj_bias=flag(config, "use_bias", False),
    )
    check_heads(mixer, expanded(config, "expand", hidden_size), ("num_heads", "head_dim", "expand"))
    return mixer


def expanded(config: Config, key: str, hidden_size: int, default: int = 2) -> int:
    """The hidden size times the expansion under ``key``, which may be a fraction.

    Raises:
        InputError: not a number, or the product is out of range.
    """
    factor = config.get(key, default)
    if isinstance(factor, bool) or not isinstance(factor, int | float):
        raise InputError(f"{key} is {shown(factor)}; expected a number")
    if not 0 < factor <= MAX_WIDTH or not 1 <= factor * hidden_size <= MAX_WIDTH:
        raise InputError(
            f"{key} is {shown(factor)}; times hidden_size {hidden_size} it must give a width from"
            f" 1 to {MAX_WIDTH}"
        )
    return int(factor * hidden_size)


def time_step_rank(config: Config, key: str, hidden_size: int) -> int:
    """The rank of the time step: a number, or ``auto`` for a sixteenth of the hidden size.

    Raises:
        InputError: neither.
    """
    if config.get(key, "auto") == "auto":
        return math.ceil(hidden_size / 16)
    return whole_number(config, key, 1)


def check_heads(mixer: Mamba2Spec, inner_size: int, keys: tuple[str, str, str]) -> None:
    """Refuses heads that do not fill the expanded width, or groups that do not divide them."""
    heads, head_dim, expand = keys
    if mixer.num_heads * mixer.head_dim != inner_size:
        raise InputError(
            f"{heads} {mixer.num_heads} x {head_dim} {mixer.head_dim} is"
            f" {mixer.num_heads * mixer.head_dim}, but {expand} x hidden_size is {inner_size}"
        )
    if mixer.num_heads % mixer.num_groups:
        raise InputError(
            f"{heads} {mixer.num_heads} is no multiple of the {mixer.num_groups} groups that share"
            " B and C"
        )
