"""What one training step does: batch, sequence, precision, optimizer and data."""

from dataclasses import dataclass, field
from typing import Literal

PrecisionName = Literal["fp32", "bf16_mixed"]
OptimizerName = Literal["adamw", "sgd"]


@dataclass(frozen=True, kw_only=True)
class PrecisionSpec:
    """Bytes of one element of each kind of training state."""

    name: PrecisionName
    compute_bytes: int
    """Of what matmuls read and activations are kept in."""
    parameter_bytes: int
    """Of the parameters that the optimizer updates (the master copy)."""
    gradient_bytes: int
    moment_bytes: int
    """Of one optimizer moment."""


PRECISIONS: dict[str, PrecisionSpec] = {
    "fp32": PrecisionSpec(
        name="fp32", compute_bytes=4, parameter_bytes=4, gradient_bytes=4, moment_bytes=4
    ),
    "bf16_mixed": PrecisionSpec(
        name="bf16_mixed", compute_bytes=2, parameter_bytes=4, gradient_bytes=4, moment_bytes=4
    ),
}

OPTIMIZER_MOMENTS: dict[OptimizerName, int] = {"adamw": 2, "sgd": 0}
"""Optimizer -> tensors of a parameter's size that it keeps."""


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """Where tokens come from.

    ``synthetic``: uniform random token ids from ``seed``. ``text``: the bytes of the files that
    ``path`` names (a file, a folder or a glob; ``${stdlib}`` is the folder of the running Python's
    standard library), one token a byte, cut into sequences in a seeded order.
    """

    source: Literal["synthetic", "text"] = "synthetic"
    path: str | None = None
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class TrainingSpec:
    """The workload of one optimizer step, independent of any layout.

    ``global_batch_size`` counts sequences; ``max_grad_norm`` None means no clipping.
    """

    sequence_length: int
    global_batch_size: int
    precision: PrecisionSpec
    optimizer: OptimizerName = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    max_grad_norm: float | None = 1.0
    data: DataSpec = field(default_factory=DataSpec)

    @property
    def tokens_per_step(self) -> int:
        return self.sequence_length * self.global_batch_size
