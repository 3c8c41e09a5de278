"""The sizes of a model that rules look at, under the names that rules use."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from meshfit.errors import InputError
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

_VISION_HEADS = ("num_heads", "num_attention_heads", "attention_heads")


def model_facts(model: ModelSpec) -> dict[str, Any]:
    """Sizes by name; what a model lacks (heads of a state-space model) is absent.

    Where layers differ in a size, it is what their sizes have in common (the greatest common
    divisor), so that what divides it divides each.
    """
    kinds = list(dict.fromkeys(model.layers))
    attentions = _blocks(kinds, AttentionSpec)
    experts = [layer.moe for layer in kinds if layer.moe is not None]
    facts = {
        "model_type": model.model_type,
        "num_attention_heads": _common(one.num_attention_heads for one in attentions)
        or model.num_attention_heads,
        "num_key_value_heads": _common(one.num_key_value_heads for one in attentions),
        "head_dim": _common(one.head_dim for one in attentions),
        "hidden_size": model.hidden_size,
        "intermediate_size": _common(mlp.intermediate_size for mlp in _blocks(kinds, MlpSpec)),
        "vocab_size": model.vocab_size,
        "num_hidden_layers": model.num_hidden_layers,
        "max_position_embeddings": model.max_position_embeddings,
        "learned_positions": model.learned_positions,
        "tie_word_embeddings": model.tie_word_embeddings,
        "dropout": model.dropout,
        "num_experts": _common(moe.num_experts for moe in experts) or 0,
        "moe_intermediate_size": _common(moe.expert.intermediate_size for moe in experts),
        "shared_expert_intermediate_size": _common(
            moe.shared.intermediate_size for moe in experts if moe.shared is not None
        ),
        "vision_num_attention_heads": _vision_heads(model.config),
    }
    facts |= _quantization_facts(model, kinds)
    return {name: value for name, value in facts.items() if value is not None}


def _blocks(layers: Iterable[LayerSpec], kind: type[Any]) -> list[Any]:
    return [block for layer in layers if (block := layer.find(kind)) is not None]


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
    """The blocks or groups along the inner width of MLPs, which tensor parallelism cuts."""
    try:
        quantization = read_quantization(model.config)
    except InputError:  # how it is stored is not known, so neither is what would cut it
        return {}
    if quantization is None:
        return {}
    formats = _inner_formats(model, layers, quantization)
    sizes = [one.group for one in formats if one.group is not None and one not in PADDED_FORMATS]
    if not sizes:
        return {}
    is_block = any(one.rows is not None and one.rows > 1 for one in formats)
    return {
        "quantization_block_size": math.lcm(*sizes),
        "quantization_unit": "block" if is_block else "group",
    }


def _inner_formats(
    model: ModelSpec, layers: Iterable[LayerSpec], quantization: Quantization
) -> list[WeightFormat]:
    tensors = (
        tensor
        for layer in layers
        for tensor in layer_tensors(layer, model.hidden_size, model.vectors_per_norm)
        if tensor.role == "linear" and "down_proj" in tensor.name
    )
    chosen = (quantization.choose(one.name.removesuffix(".weight"), one) for one in tensors)
    return list(dict.fromkeys(one for one in chosen if one is not None))
