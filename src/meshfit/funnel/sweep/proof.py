"""How a sweep proves that its layouts compute the same step.

One process on the whole model where it can hold it (``single_process``). Else one process on the
model cut to few layers (``reduced``), and on the whole model the early losses and gradient norms
of every layout against those of one plain layout (``reference``).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshfit.errors import InputError
from meshfit.funnel.space.planning import estimate_candidates
from meshfit.job.spec import Job
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.schema import ParityKind
from meshfit.units import format_bytes
from meshfit.workload.families import read_family
from meshfit.workload.reduce import reductions

PLAINEST_FIRST = ("DDP", "ZeRO-1", "FSDP2", "ZeRO-2", "HSDP", "TP", "PP")
SHARE_OF_MEMORY = 0.8
"""Of the memory of all ranks together (CPU) or of one device, that a single process may take."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What the reference launch runs.

    ``kind`` is ``single_process`` or ``reduced``; ``config`` the model it runs (the whole one or
    the cut one), ``steps`` how it was cut, ``layout`` the single-process layout.
    """

    kind: ParityKind
    config: dict[str, Any]
    steps: tuple[str, ...]
    layout: LayoutSpec


def plan_proof(job: Job, layouts: Sequence[LayoutSpec]) -> Proof:
    """The gentlest proof that fits the memory of one process here.

    Raises:
        InputError: ``run.parity: single_process`` was asked for and the model is too big, or even
            the smallest cut is.
    """
    whole = dict(job.model.config)
    if job.run.parity != "reduced":
        layout, needed = _single_layout(job)
        if needed <= _memory_of_one_process(job):
            return Proof(kind="single_process", config=whole, steps=(), layout=layout)
        if job.run.parity == "single_process":
            raise InputError(
                f"run.parity: single_process, but one process needs about {format_bytes(needed)} "
                f"and has {format_bytes(_memory_of_one_process(job))}; `auto` or `reduced` would "
                f"prove parity on a cut model"
            )
    return _reduced_proof(job, layouts)


def plainest(layouts: Sequence[LayoutSpec]) -> LayoutSpec:
    """The layout with the fewest strategies: what others are compared with on the whole model."""

    def plainness(layout: LayoutSpec) -> tuple[int, int]:
        parts = layout.family.split("+")
        rank = PLAINEST_FIRST.index(parts[0]) if parts[0] in PLAINEST_FIRST else len(PLAINEST_FIRST)
        return len(parts), rank

    return min(layouts, key=plainness)


def on_reduced_model(layout: LayoutSpec) -> LayoutSpec:
    """``layout`` for the cut model: stages as even as can be, for its layer counts no longer hold."""
    return replace(layout, stage_layers=None)


def _reduced_proof(job: Job, layouts: Sequence[LayoutSpec]) -> Proof:
    fewest = max(layout.num_stages for layout in layouts)
    multiple = math.lcm(*(layout.tp for layout in layouts))
    needed = 0
    for reduced in reductions(job.model.config, fewest_layers=fewest, multiple=multiple):
        small = replace(job, model=read_family(job.model.name, reduced.config))
        layout, needed = _single_layout(small)
        if needed <= _memory_of_one_process(job):
            return Proof(kind="reduced", config=reduced.config, steps=reduced.steps, layout=layout)
    raise InputError(
        f"one process cannot hold {job.model.name} even cut to {fewest} layers: it needs about "
        f"{format_bytes(needed)} and has {format_bytes(_memory_of_one_process(job))}; a shorter "
        f"workload.sequence_length needs less"
    )


def _single_layout(job: Job) -> tuple[LayoutSpec, int]:
    """The single-process layout with the largest micro-batch that fits, and its bytes.

    The result does not depend on the micro-batch; larger ones only spare time. When none fits,
    the smallest micro-batch and what it needs.
    """
    batch = job.training.global_batch_size
    sizes = [size for size in range(1, min(batch, 64) + 1) if batch % size == 0]
    layouts = [LayoutSpec(micro_batch_size=size) for size in sizes]
    estimates, _ = estimate_candidates(job, Candidates.from_layouts(layouts))
    budget = _memory_of_one_process(job)
    for layout, needed in reversed(list(zip(layouts, estimates.memory_high_bytes, strict=True))):
        if needed <= budget:
            return layout, int(needed)
    return layouts[0], int(estimates.memory_high_bytes[0])


def _memory_of_one_process(job: Job) -> int:
    """Bytes one process may take: all ranks' share of a CPU machine, or one device."""
    accelerator = job.topology.accelerator
    ranks = job.topology.num_accelerators if accelerator.device_type == "cpu" else 1
    return int(SHARE_OF_MEMORY * accelerator.memory_bytes * ranks)
