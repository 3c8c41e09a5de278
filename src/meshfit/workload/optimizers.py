"""Bytes of training state by optimizer and precision, for a model of any kind.

What an optimizer keeps depends on a parameter's shape: Muon has one moment of matrices and AdamW's
two of the rest, 8-bit AdamW keeps small tensors in 32 bits.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from meshfit.workload.blocks.tensor import Tensor
from meshfit.workload.counts import TrainingStateBytes, model_tensors
from meshfit.workload.model import ModelSpec
from meshfit.workload.parts import part_of

EIGHT_BIT_BLOCK = 256
"""Elements that share one fp32 scale in bitsandbytes' 8-bit optimizers."""

EIGHT_BIT_LEAST = 4096
"""Tensors with fewer elements keep 32-bit moments there (``min_8bit_size``)."""


@dataclass(frozen=True, kw_only=True)
class StatePrecision:
    """Bytes a parameter of what every optimizer needs beside its own state."""

    parameters: int
    gradients: int
    moments: int


STATE_PRECISIONS: Mapping[str, StatePrecision] = {
    "fp32": StatePrecision(parameters=4, gradients=4, moments=4),
    "bf16_mixed": StatePrecision(parameters=4, gradients=4, moments=4),
    "bf16": StatePrecision(parameters=2, gradients=2, moments=2),
    "bf16_fp32_moments": StatePrecision(parameters=2, gradients=2, moments=4),
    "bf16_with_fp32_master": StatePrecision(parameters=6, gradients=4, moments=4),
}
"""``bf16_mixed`` keeps fp32 parameters and casts them in compute (PyTorch FSDP2);
``bf16_with_fp32_master`` keeps a copy in either precision (Megatron, DeepSpeed)."""

OptimizerBytes = Callable[[Tensor, int], int]
"""(one tensor, bytes of a moment) -> bytes that the optimizer keeps for one copy of it."""


def _moments(count: int) -> OptimizerBytes:
    return lambda tensor, moment_bytes: count * _elements(tensor) * moment_bytes


def _adamw_8bit(tensor: Tensor, moment_bytes: int) -> int:
    """Two moments of a byte an element and a scale a block (arXiv 2110.02861)."""
    elements = _elements(tensor)
    if elements < EIGHT_BIT_LEAST:
        return 2 * 4 * elements
    return 2 * (elements + 4 * -(-elements // EIGHT_BIT_BLOCK))


def _muon(tensor: Tensor, moment_bytes: int) -> int:
    """One moment of matrices inside layers; AdamW's two of embeddings, head and vectors."""
    hidden = tensor.role in ("linear", "router") and part_of(tensor.name) != "lm_head"
    return (1 if hidden else 2) * _elements(tensor) * moment_bytes


def _adafactor(tensor: Tensor, moment_bytes: int) -> int:
    """A second moment factored into rows and columns, no first (arXiv 1804.04235)."""
    if len(tensor.shape) != 2:
        return _elements(tensor) * moment_bytes
    return sum(tensor.shape) * moment_bytes


def _elements(tensor: Tensor) -> int:
    return tensor.elements // tensor.copies if tensor.copies else 0


OPTIMIZERS: Mapping[str, OptimizerBytes] = {
    "adamw": _moments(2),
    "adamw_8bit": _adamw_8bit,
    "adafactor": _adafactor,
    "lion": _moments(1),
    "muon": _muon,
    "sgd": _moments(0),
    "sgd_momentum": _moments(1),
}
"""Optimizer -> bytes of its state. Step counters are left out."""


def training_states(model: ModelSpec) -> dict[str, dict[str, TrainingStateBytes]]:
    """Precision -> optimizer -> bytes of the state of the whole model, undivided.

    Copies in the compute precision are no state; neither is a step counter.
    """
    tensors = tuple(model_tensors(model))
    elements = sum(count * tensor.elements for tensor, count in tensors)

    @cache
    def kept(optimizer: str, moment_bytes: int) -> int:
        rule = OPTIMIZERS[optimizer]
        return sum(count * tensor.copies * rule(tensor, moment_bytes) for tensor, count in tensors)

    return {
        name: {
            optimizer: TrainingStateBytes(
                parameters=elements * precision.parameters,
                gradients=elements * precision.gradients,
                optimizer=kept(optimizer, precision.moments),
            )
            for optimizer in OPTIMIZERS
        }
        for name, precision in STATE_PRECISIONS.items()
    }
