"""What all frameworks have in common: the parts of a row put together as a job."""

from dataclasses import dataclass, field, replace
from typing import Literal

from meshfit.mesh.spec import LayoutSpec
from meshfit.profile import EngineProfile
from meshfit.validate.architecture import model_of
from meshfit.validate.divisions import Defaults, global_batch_of, layout_of
from meshfit.validate.hardware import topology_of
from meshfit.validate.numerics import (
    adapter_of,
    optimizer_of,
    precision_of,
    runtime_of,
    with_defaults,
)
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import TruthRow
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import RuntimeSpec, TrainingSpec


@dataclass(frozen=True, kw_only=True)
class Conventions:
    """How one framework is read.

    Attributes:
        defaults: what it does where a row does not say.
        runtime: its own choices where a row does not say; None stays the engine's default.
        pure_bf16: whether plain ``bf16`` keeps its states in bf16 too.
        adapter_rank: of its adapters where none is printed.
        memory_of: the rank whose memory it prints.
        gradient_bytes: of one gradient as kept, where not the precision's.
    """

    profile: EngineProfile
    defaults: Defaults = field(default_factory=Defaults)
    runtime: RuntimeSpec = field(default_factory=RuntimeSpec)
    pure_bf16: bool = False
    adapter_rank: int = 8
    memory_of: Literal["fullest", "last"] = "fullest"
    gradient_bytes: int | None = None


def assemble(row: TruthRow, how: Conventions, model: ModelSpec | None = None) -> RowJob:
    """The job of a row.

    Args:
        model: where a framework describes it otherwise than the columns do.

    Raises:
        NotModelledError: something that is needed is not stated or not known.
    """
    model = model or model_of(row)
    layout = layout_of(row, model, how.defaults)
    precision = precision_of(row, pure=how.pure_bf16)
    if how.gradient_bytes is not None:
        precision = replace(precision, gradient_bytes=how.gradient_bytes)
    training = TrainingSpec(
        sequence_length=row.required("seq_len"),
        global_batch_size=global_batch_of(row, layout),
        precision=precision,
        optimizer=optimizer_of(row),
        adapter=adapter_of(row, default_rank=how.adapter_rank),
        runtime=with_defaults(runtime_of(row), how.runtime),
    )
    return RowJob(
        row=row,
        model=model,
        training=training,
        layout=layout,
        profile=how.profile,
        topology=topology_of(row),
        memory_of=how.memory_of,
        assumed=_assumed(row, layout),
    )


def _assumed(row: TruthRow, layout: LayoutSpec) -> tuple[str, ...]:
    taken = {"mbs": f"micro-batch {layout.micro_batch_size}", "recompute": layout.recompute}
    return tuple(f"{column}: {value}" for column, value in taken.items() if not row.text(column))
