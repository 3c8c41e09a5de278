"""The sizes of a model that rules look at, under the names that rules use."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from meshfit.errors import InputError
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.blocks.linear import (
    GatedDeltaNetSpec,
    KimiDeltaSpec,
    LightningAttentionSpec,
)
from meshfit.workload.blocks.state_space import Mamba2Spec, MambaSpec
from meshfit.workload.counts import layer_tensors
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec
from meshfit.workload.quantization import (
    MXFP4,
    NF4,
    NVFP4,
    Quantization,
    WeightFormat,
    read_quantization,
)

PADDED_FORMATS = (MXFP4, NVFP4, NF4)
"""Formats of small groups, which engines pad where a cut would not keep a group whole."""

BlockKind = TypeVar("BlockKind", bound=Block)

_VISION_HEADS = ("num_heads", "num_attention_heads", "attention_heads")


def model_facts(model: ModelSpec) -> dict[str, Any]:
    """Sizes by name; what a model lacks (heads of a state-space model) is absent.

    Where layers differ in a size, it is what their sizes have in common (the greatest common
    divisor), so that what divides it divides each.
    """
    kinds = list(dict.fromkeys(model.layers))
    blocks = [block for layer in kinds for _, block in layer.blocks]
    experts = [layer.moe for layer in kinds if layer.moe is not None]
    facts = {
        "model_type": model.model_type,
        "hidden_size": model.hidden_size,
        "intermediate_size": _common(mlp.intermediate_size for mlp in _of(MlpSpec, blocks)),
        "vocab_size": model.vocab_size,
        "num_hidden_layers": model.num_hidden_layers,
        "max_position_embeddings": model.max_position_embeddings,
        "learned_positions": model.learned_positions,
        "tie_word_embeddings": model.tie_word_embeddings,
        "dropout": model.dropout,
        "latent_attention": bool(_of(LatentAttentionSpec, blocks)),
        "auxiliary_loss": bool(experts and model.config.get("output_router_logits")),
        "num_experts": _common(moe.num_experts for moe in experts) or 0,
        "moe_intermediate_size": _common(moe.expert.intermediate_size for moe in experts),
        "shared_expert_intermediate_size": _common(
            moe.shared.intermediate_size for moe in experts if moe.shared is not None
        ),
        "vision_num_attention_heads": _vision_heads(model.config),
    }
    facts |= _attention_facts(blocks) | _mixer_facts(blocks) | _quantization_facts(model, kinds)
    return {name: value for name, value in facts.items() if value is not None}


def _attention_facts(blocks: Sequence[Block]) -> dict[str, Any]:
    """Heads of every attention; key/value heads of those that have any."""
    attentions = _of(AttentionSpec, blocks)
    heads = (getattr(block, "num_attention_heads", None) for block in blocks)
    key_value_heads = list(dict.fromkeys(one.num_key_value_heads for one in attentions))
    widths = [one.num_attention_heads * one.value_dim for one in attentions]
    widths += [one.num_attention_heads * one.v_head_dim for one in _of(LatentAttentionSpec, blocks)]
    return {
        "num_attention_heads": _common(one for one in heads if one is not None),
        "num_key_value_heads": _common(key_value_heads),
        "key_value_heads_of_layers": tuple(key_value_heads) if len(key_value_heads) > 1 else None,
        "head_dim": _common(one.head_dim for one in attentions),
        "sliding_window": min((one.sliding_window or 0 for one in attentions), default=None),
        "attention_width": _common(widths),
    }


def _mixer_facts(blocks: Sequence[Block]) -> dict[str, Any]:
    """What tensor parallelism cuts in state-space and linear-attention layers."""
    linear = _of(GatedDeltaNetSpec, blocks)
    state_space = _of(Mamba2Spec, blocks)
    heads = [one.num_value_heads for one in linear]
    heads += [one.num_heads for one in state_space]
    heads += [one.num_heads for one in _of(KimiDeltaSpec, blocks)]
    heads += [one.num_heads for one in _of(LightningAttentionSpec, blocks)]
    return {
        "mixer_heads": _common(heads),
        "linear_key_heads": _common(one.num_key_heads for one in linear),
        "state_space_groups": _common(one.num_groups for one in state_space),
        "state_space_channels": _common(one.inner_size for one in _of(MambaSpec, blocks)),
    }


def _of(kind: type[BlockKind], blocks: Iterable[Block]) -> list[BlockKind]:
    return [block for block in blocks if isinstance(block, kind)]


def _common(sizes: Iterable[int]) -> int | None:
    """The greatest common divisor; None without sizes."""
    return math.gcd(*sizes) or None


def _vision_heads(config: Mapping[str, Any]) -> int | None:
    vision = config.get("vision_config")
    if not isinstance(vision, Mapping):
        return None
    found = (vision.get(key) for key in _VISION_HEADS)
    return next((heads for heads in found if isinstance(heads, int) and heads > 0), None)


def _quantization_facts(model: ModelSpec, layers: Iterable[LayerSpec]) -> dict[str, Any]:
    """Blocks or groups of weights, along the widths that tensor parallelism cuts."""
    try:
        quantization = read_quantization(model.config)
    except InputError:  # how it is stored is not known, so neither is what would cut it
        return {}
    if quantization is None:
        return {}
    stored = _formats_by_name(model, layers, quantization)
    inner, output = stored["down_proj"], stored["o_proj"]
    sizes = {
        "quantization_block_size": _block_size(one.group for one in inner),
        "attention_quantization_block_size": _block_size(one.group for one in output),
        "key_value_quantization_rows": _block_size(one.rows for one in stored["k_proj"]),
    }
    if not any(sizes.values()):
        return {}
    is_block = any(one.rows is not None and one.rows > 1 for one in inner + output)
    return sizes | {"quantization_unit": "block" if is_block else "group"}


def _formats_by_name(
    model: ModelSpec, layers: Iterable[LayerSpec], quantization: Quantization
) -> dict[str, list[WeightFormat]]:
    """Name of a linear map -> how it is stored, where that has blocks that are not padded."""
    formats: dict[str, list[WeightFormat]] = {"down_proj": [], "o_proj": [], "k_proj": []}
    for layer in layers:
        for tensor in layer_tensors(layer, model.hidden_size, model.vectors_per_norm):
            module = tensor.name.removesuffix(".weight")
            found = formats.get(module.rpartition(".")[2])
            if found is None or tensor.role != "linear":
                continue
            chosen = quantization.choose(module, tensor)
            if chosen is not None and chosen not in PADDED_FORMATS:
                found.append(chosen)
    return formats


def _block_size(sizes: Iterable[int | None]) -> int | None:
    """What every cut has to be a multiple of; None where a scale serves a whole row or tensor."""
    known = [size for size in sizes if size is not None and size > 1]
    return math.lcm(*known) if known else None
