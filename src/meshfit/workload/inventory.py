"""The inventory of a model as one document: what ``meshfit model --json`` prints."""

from dataclasses import asdict
from typing import Any

from meshfit.workload import counts
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import OPTIMIZER_MOMENTS, PRECISIONS


def inventory(model: ModelSpec, sequence_length: int) -> dict[str, Any]:
    """Dimensions, parameters, KV cache, FLOPs and training state of ``model``.

    Sizes are bytes, undivided by any layout; FLOPs are per token of full sequences.
    ``kv_cache.windowed_bytes_per_sequence`` is one sequence's cache when windowed layers keep
    their window only; ``training_state`` has one entry a precision and optimizer.

    Raises:
        InputError: ``sequence_length`` is not positive.
    """
    return {
        "name": model.name,
        "model_type": model.model_type,
        "dimensions": _dimensions(model),
        "parameters": {
            "total": counts.total_parameters(model),
            "active": counts.active_parameters(model),
            "by_part": counts.parameters_by_part(model),
        },
        "kv_cache": {
            "bytes_per_token": counts.kv_cache_bytes_per_token(model),
            "windowed_bytes_per_sequence": counts.kv_cache_bytes(model, sequence_length),
        },
        "flops": {
            "forward_per_token": counts.forward_flops_per_token(model, sequence_length),
            "training_per_token": counts.training_flops_per_token(model, sequence_length),
            "sequence_length": sequence_length,
            "formula": counts.FLOPS_FORMULA,
        },
        "training_state": _training_state(model),
    }


def _training_state(model: ModelSpec) -> dict[str, dict[str, dict[str, int]]]:
    states = {
        name: {
            optimizer: counts.training_state_bytes(model, precision, optimizer)
            for optimizer in OPTIMIZER_MOMENTS
        }
        for name, precision in PRECISIONS.items()
    }
    return {
        name: {key: asdict(state) | {"total": state.total} for key, state in by_optimizer.items()}
        for name, by_optimizer in states.items()
    }


def _dimensions(model: ModelSpec) -> dict[str, Any]:
    windows = [layer.attention.sliding_window for layer in model.layers]
    return {
        "num_hidden_layers": model.num_hidden_layers,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.mlp.intermediate_size,
        "num_attention_heads": model.attention.num_attention_heads,
        "num_key_value_heads": model.attention.num_key_value_heads,
        "head_dim": model.attention.head_dim,
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_position_embeddings,
        "tie_word_embeddings": model.tie_word_embeddings,
        "sliding_window": next((window for window in windows if window), None),
        "sliding_window_layers": sum(window is not None for window in windows),
    }
