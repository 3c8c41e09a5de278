"""The inventory of a model as one document: what ``meshfit model --json`` prints."""

from collections import Counter
from dataclasses import asdict
from typing import Any

from meshfit.errors import InputError
from meshfit.workload import counts
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.feed_forward import MlpSpec
from meshfit.workload.model import LayerSpec, ModelSpec
from meshfit.workload.optimizers import training_states
from meshfit.workload.quantization import (
    COMMON_FORMATS,
    WeightBytes,
    everything_as,
    plain_element_bytes,
    read_quantization,
    weight_bytes,
)


def inventory(model: ModelSpec, sequence_length: int) -> dict[str, Any]:
    """Dimensions, parameters, weights, KV cache, FLOPs and training state of ``model``.

    Sizes are bytes, undivided by any layout; FLOPs are per token of full sequences. What could not
    be obtained is absent, and ``notes`` says why; ``notes`` also names what counts leave out.

    Raises:
        InputError: ``sequence_length`` is not positive.
    """
    document = {
        "name": model.name,
        "model_type": model.model_type,
        "dimensions": _dimensions(model),
        "layers": _layers(model),
        "parameters": _parameters(model),
        "kv_cache": _caches(model, sequence_length),
        "flops": _flops(model, sequence_length),
        "weights": _weights(model),
        "training_state": _training_state(model),
    }
    return document | {"notes": _notes(model)}


def _parameters(model: ModelSpec) -> dict[str, Any]:
    """``left_out``: what the checkpoint holds, but published counts do not."""
    left_out = {
        tower.name: sum(tensor.elements for tensor in tower.tensors)
        for tower in model.towers
        if tower.tensors is not None and not tower.counted
    }
    if model.mtp is not None:
        left_out["multi_token_prediction"] = counts.mtp_parameters(model)
    return {
        "total": counts.total_parameters(model),
        "active": counts.active_parameters(model),
        "by_part": counts.parameters_by_part(model),
        "left_out": left_out,
    }


def _caches(model: ModelSpec, sequence_length: int) -> dict[str, Any]:
    """``bytes_per_token``: 16-bit keys and values (or the latent), every attention layer in full.

    ``windowed_bytes_per_sequence`` is one sequence's cache when windowed layers keep their window
    only; ``state_bytes_per_sequence`` is what recurrent layers keep whatever the length.
    """
    cache = {
        "bytes_per_token": counts.kv_cache_bytes_per_token(model),
        "windowed_bytes_per_sequence": counts.kv_cache_bytes(model, sequence_length),
        "state_bytes_per_sequence": counts.state_bytes_per_sequence(model),
        "indexer_bytes_per_token": counts.cache_bytes_per_token(model, "indexer"),
        "cross_attention_bytes_per_source_token": counts.cache_bytes_per_token(
            model, "cross_attention"
        ),
    }
    optional = tuple(cache)[2:]
    return {key: value for key, value in cache.items() if value or key not in optional}


def _flops(model: ModelSpec, sequence_length: int) -> dict[str, Any]:
    flops: dict[str, Any] = {
        "forward_per_token": counts.forward_flops_per_token(model, sequence_length),
        "training_per_token": counts.training_flops_per_token(model, sequence_length),
        "sequence_length": sequence_length,
        "formula": counts.flops_formula(model),
    }
    if model.mtp is not None:
        forward = counts.mtp_forward_flops_per_token(model, sequence_length)
        flops["multi_token_prediction"] = {
            "forward_per_token": forward,
            "training_per_token": 3 * forward,
        }
    return flops


def _weights(model: ModelSpec) -> dict[str, Any]:
    """``checkpoint``: as the config says it is stored; the rest: what it would be otherwise."""
    weights: dict[str, Any] = {
        "fp32": weight_bytes(model, None, plain_bytes=4).total,
        "bf16": weight_bytes(model, None).total,
    }
    for name, weight_format in COMMON_FORMATS.items():
        weights[name] = weight_bytes(model, everything_as(weight_format)).total
    try:
        quantization = read_quantization(model.config)
    except InputError:
        return weights
    plain = plain_element_bytes(model.config)
    if quantization is not None:
        stored = weight_bytes(model, quantization, plain_bytes=plain or 2)
        weights["checkpoint"] = {"format": quantization.name, **_stored(stored)}
    elif plain is not None:
        stored = weight_bytes(model, None, plain_bytes=plain)
        weights["checkpoint"] = {"format": f"{8 * plain} bits", **_stored(stored)}
    return weights


def _stored(stored: WeightBytes) -> dict[str, int]:
    return {
        "bytes": stored.total,
        "scale_bytes": stored.scales,
        "quantized_parameters": stored.quantized_parameters,
        "kept_parameters": stored.kept_parameters,
    }


def _training_state(model: ModelSpec) -> dict[str, dict[str, dict[str, int]]]:
    """One entry a precision and optimizer."""
    return {
        precision: {
            optimizer: asdict(state) | {"total": state.total}
            for optimizer, state in by_optimizer.items()
        }
        for precision, by_optimizer in training_states(model).items()
    }


def _notes(model: ModelSpec) -> list[str]:
    notes = []
    for tower in model.towers:
        if tower.tensors is None:
            notes.append(f"{tower.name} is not counted: its sizes cannot be read here")
        elif not tower.counted:
            notes.append(f"{tower.name} is left out, as transformers' language model leaves it out")
    if model.mtp is not None:
        notes.append(
            f"{model.mtp.depth} head(s) for multi-token prediction are left out, as in published"
            " counts"
        )
    if model.mtp_unknown:
        notes.append(f"heads for multi-token prediction are not counted: {model.mtp_unknown}")
    if model.encoder:
        notes.append("FLOPs are per target token, with as many source tokens as target tokens")
    try:
        read_quantization(model.config)
    except InputError as error:
        notes.append(f"bytes of the checkpoint are absent: {error}")
    return notes


def _layers(model: ModelSpec) -> list[dict[str, Any]]:
    """Every kind of layer: how many there are, and the sizes of its blocks."""
    stacks = {"encoder": model.encoder, "decoder": model.layers}
    return [
        {"stack": stack, "count": count, "blocks": _blocks(layer)}
        for stack, layers in stacks.items()
        for layer, count in Counter(layers).items()
    ]


def _blocks(layer: LayerSpec) -> dict[str, Any]:
    return {
        name: {"kind": type(block).__name__.removesuffix("Spec")} | asdict(block)  # type: ignore[call-overload]
        for name, block in layer.blocks
    }


def _dimensions(model: ModelSpec) -> dict[str, Any]:
    """Sizes of the model, and of its first attention, MLP and experts; None where it has none."""
    attention, mlp, moe = model.find(AttentionSpec), model.find(MlpSpec), model.moe
    windows = [layer_window(layer) for layer in model.layers]
    return {
        "num_hidden_layers": model.num_hidden_layers,
        "hidden_size": model.hidden_size,
        "intermediate_size": mlp.intermediate_size if mlp else None,
        "num_attention_heads": model.num_attention_heads,
        "num_key_value_heads": attention.num_key_value_heads if attention else None,
        "head_dim": attention.head_dim if attention else None,
        "num_experts": moe.num_experts if moe else None,
        "experts_per_token": moe.experts_per_token if moe else None,
        "moe_intermediate_size": moe.expert.intermediate_size if moe else None,
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_position_embeddings,
        "tie_word_embeddings": model.tie_word_embeddings,
        "sliding_window": next((window for window in windows if window), None),
        "sliding_window_layers": sum(window is not None for window in windows),
    }


def layer_window(layer: LayerSpec) -> int | None:
    """Tokens that a layer keeps of a sequence at most; None: all, or it keeps none."""
    windows = [
        cache.window
        for _, block in layer.blocks
        for cache in block.caches
        if cache.kind == "attention"
    ]
    return next((window for window in windows if window is not None), None)
