"""Qwen3-VL, and the vision tower that it shares with Qwen3.5."""

from collections.abc import Sequence
from dataclasses import replace

from meshfit.errors import InputError
from meshfit.workload.blocks.tensor import Tensor, linear, lookup, norm
from meshfit.workload.families import qwen3
from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, by_sparse_step, feed_forwards
from meshfit.workload.families.keys import (
    MAX_HEADS,
    MAX_LAYERS,
    Config,
    flag,
    index_list,
    mapping,
    whole_number,
)
from meshfit.workload.families.qwen_moe import QWEN3_MOE
from meshfit.workload.model import MlpSpec, ModelSpec, TowerSpec

DEEPSTACK = (8, 16, 24)
"""Layers of the tower whose output also enters the language model, where the config names none."""


def read_text(name: str, config: Config) -> ModelSpec:
    """The language model of a dense Qwen3-VL: Qwen3.

    Raises:
        InputError: a key cannot be right.
    """
    return replace(qwen3.read(name, config), model_type="qwen3_vl_text")


def read_moe_text(name: str, config: Config) -> ModelSpec:
    """The language model of a Qwen3-VL with experts: Qwen3-MoE with tied embeddings by default.

    Raises:
        InputError: a key cannot be right.
    """
    return MOE_TEXT.read(name, config)


MOE_TEXT = replace(
    QWEN3_MOE,
    model_type="qwen3_vl_moe_text",
    defaults=DecoderSizes(
        vocab_size=151936,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=24,
        num_attention_heads=16,
        max_position_embeddings=128000,
    ),
    num_key_value_heads=16,
    tie_word_embeddings=True,
    feed_forwards=feed_forwards(
        Experts(
            total=("num_experts", 60),
            chosen=("num_experts_per_tok", 4),
            width=("moe_intermediate_size", 1408),
        ),
        by_sparse_step,
    ),
)


def read(name: str, config: Config) -> ModelSpec:
    """A dense Qwen3-VL with its vision tower.

    Raises:
        InputError: the text config is missing, or a key cannot be right.
    """
    return _with_tower(read_text(name, _text_config(config)), config, "qwen3_vl")


def read_moe(name: str, config: Config) -> ModelSpec:
    """A Qwen3-VL with experts and its vision tower. Raises ``InputError`` as ``read``."""
    return _with_tower(read_moe_text(name, _text_config(config)), config, "qwen3_vl_moe")


def _text_config(config: Config) -> Config:
    text = mapping(config, "text_config")
    if not text:
        raise InputError("text_config is missing; it holds the sizes of the language model")
    return text


def _with_tower(model: ModelSpec, config: Config, model_type: str) -> ModelSpec:
    vision = mapping(config, "vision_config")
    tower = vision_tower(vision, deepstack=_deepstack(vision))
    return replace(
        model,
        model_type=model_type,
        tie_word_embeddings=flag(config, "tie_word_embeddings", False),
        towers=(tower,),
        config=config,
    )


def _deepstack(vision: Config) -> Sequence[int]:
    if "deepstack_visual_indexes" not in vision:
        return DEEPSTACK
    depth = whole_number(vision, "depth", 27, maximum=MAX_LAYERS)
    return sorted(index_list(vision, "deepstack_visual_indexes", depth))


def vision_tower(vision: Config, *, deepstack: Sequence[int], counted: bool = True) -> TowerSpec:
    """The tower of a ``vision_config``: patches, layers, one merger, and one for each entry of
    ``deepstack``.

    Raises:
        InputError: a size cannot be right.
    """
    width = whole_number(vision, "hidden_size", 1152)
    depth = whole_number(vision, "depth", 27, maximum=MAX_LAYERS)
    whole_number(vision, "num_heads", 16, maximum=MAX_HEADS)
    inner = whole_number(vision, "intermediate_size", 4304)
    merged = width * whole_number(vision, "spatial_merge_size", 2, maximum=64) ** 2
    output = whole_number(vision, "out_hidden_size", 3584)
    patch = whole_number(vision, "patch_size", 16, maximum=2**10)
    volume = patch**2 * whole_number(vision, "temporal_patch_size", 2, maximum=64)
    channels = whole_number(vision, "in_channels", 3, maximum=2**10)
    layer = (
        *norm("norm1", width, vectors=2),
        *norm("norm2", width, vectors=2),
        *linear("attn.qkv", width, 3 * width, bias=True),
        *linear("attn.proj", width, width, bias=True),
        *MlpSpec(intermediate_size=inner, gated=False, bias=True).tensors(width),
    )
    return TowerSpec(
        name="vision_config",
        counted=counted,
        tensors=(
            *linear("patch_embed.proj", channels * volume, width, bias=True),
            lookup("pos_embed", whole_number(vision, "num_position_embeddings", 2304), width),
            *(tensor.repeated(depth) for tensor in layer),
            *_merger(width, merged, output),
            *(tensor.repeated(len(deepstack)) for tensor in _merger(merged, merged, output)),
        ),
    )


def _merger(normed: int, merged: int, output: int) -> tuple[Tensor, ...]:
    return (
        *norm("merger.norm", normed, vectors=2),
        *linear("merger.linear_fc1", merged, merged, bias=True),
        *linear("merger.linear_fc2", merged, output, bias=True),
    )
