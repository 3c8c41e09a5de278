"""Activation recomputation: which of a layer's tensors are made again in the backward.

Dropout is off, so no random state has to be brought back.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from meshfit.mesh.spec import LayoutSpec
from meshfit.run.model.transformer import Stage

_aten = torch.ops.aten
_MATMULS = frozenset((_aten.mm.default, _aten.addmm.default))
_KEPT = frozenset(
    (
        _aten._scaled_dot_product_flash_attention_for_cpu.default,
        _aten._scaled_dot_product_flash_attention.default,
        _aten._scaled_dot_product_efficient_attention.default,
        _aten._scaled_dot_product_cudnn_attention.default,
        torch.ops._c10d_functional.reduce_scatter_tensor.default,
    )
)
"""Attention kernels and reductions: dear to run again, and small to keep."""


def apply_recompute(stage: Stage, layout: LayoutSpec) -> None:
    """Make a stage's layers recompute as ``layout.recompute`` says (``LayoutSpec``)."""
    if layout.recompute == "selective":
        _recompute_attention(stage.model.config)
    for layer in _recomputed_layers(stage.layers, layout):
        layer.gradient_checkpointing = True
        layer._gradient_checkpointing_func = (
            _by_operation if layout.recompute == "operations" else _in_full
        )


def _recomputed_layers(layers: list[nn.Module], layout: LayoutSpec) -> list[nn.Module]:
    """Those that a checkpoint goes around."""
    number = layout.recompute_layers
    match layout.recompute:
        case "full" | "operations":
            return layers
        case "alternate":
            return layers[number - 1 :: number]
        case "block":
            return layers[:number]
    return []


def _in_full(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Keep the inputs alone."""
    return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)


def _by_operation(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Keep inputs, and outputs of attention and of the first, third, fifth ... matmul.

    The list of torchtitan's selective checkpointing (``distributed/activation_checkpoint.py``).
    """
    return _in_full(function, *args, context_fn=_contexts_of_operations, **kwargs)


def _contexts_of_operations() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    return create_selective_checkpoint_contexts(_EverySecondMatmul())


class _EverySecondMatmul:
    """Says of each operation of one layer whether its output is kept."""

    def __init__(self) -> None:
        self._matmuls = {False: 0, True: 0}

    def __call__(
        self, context: SelectiveCheckpointContext, operation: Any, *_args: Any, **_kwargs: Any
    ) -> CheckpointPolicy:
        is_kept = operation in _KEPT
        if operation in _MATMULS:
            self._matmuls[context.is_recompute] += 1
            is_kept = self._matmuls[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE


def _recompute_attention(config: Any) -> None:
    """Let attention keep queries, keys and values alone, whatever function computes it."""
    name = config._attn_implementation
    recomputed = f"{name}_recomputed"
    ALL_ATTENTION_FUNCTIONS.register(recomputed, partial(_in_full, ALL_ATTENTION_FUNCTIONS[name]))
    ALL_MASK_ATTENTION_FUNCTIONS.register(recomputed, ALL_MASK_ATTENTION_FUNCTIONS[name])
    config._attn_implementation = recomputed
