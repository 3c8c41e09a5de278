"""For a layout that does not fit: the single changes that would make it fit."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from meshfit.cluster.topology import Topology
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.facts import facts_of
from meshfit.mesh.rules import allowed
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.estimate import estimate
from meshfit.predict.verdict import FITS, verdict_codes
from meshfit.profile import EngineProfile
from meshfit.units import format_bytes
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import TrainingSpec


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of a layout that keeps its world size.

    ``slowdown`` is its predicted step time over that of the layout it changes.
    """

    layout: LayoutSpec
    words: str
    memory_high_bytes: float
    slowdown: float

    def __str__(self) -> str:
        return (
            f"fits with {self.words}: at most {format_bytes(self.memory_high_bytes)}, "
            f"predicted step time x{self.slowdown:.2f}"
        )


def changes_that_fit(
    layout: LayoutSpec,
    *,
    model: ModelSpec,
    training: TrainingSpec,
    topology: Topology,
    profile: EngineProfile,
    headroom_fraction: float,
) -> tuple[Change, ...]:
    """Legal single changes after which ``layout`` is predicted to fit, the fastest first."""
    tried = list(_neighbours(layout))
    candidates = Candidates.from_layouts([layout, *(neighbour for neighbour, _ in tried)])
    facts = facts_of(model=model, training=training, topology=topology)
    estimates = estimate(model, training, topology, candidates, profile)
    codes = verdict_codes(
        middle_bytes=estimates.memory_middle_bytes,
        high_bytes=estimates.memory_high_bytes,
        capacity_bytes=topology.accelerator.memory_bytes,
        headroom_fraction=headroom_fraction,
    )
    good = allowed(candidates, profile, facts) & (codes == FITS)
    return tuple(
        Change(
            layout=tried[row - 1][0],
            words=tried[row - 1][1],
            memory_high_bytes=float(estimates.memory_high_bytes[row]),
            slowdown=float(estimates.step_middle_s[row] / estimates.step_middle_s[0]),
        )
        for row in np.argsort(estimates.step_middle_s, kind="stable")
        if row > 0 and good[row]
    )


def _neighbours(layout: LayoutSpec) -> Iterator[tuple[LayoutSpec, str]]:
    """Layouts one change away, and the change in words."""
    if layout.recompute == "none":
        yield replace(layout, recompute="full"), "recompute=full"
    size = layout.micro_batch_size // 2
    while size >= 1:
        yield replace(layout, micro_batch_size=size), f"micro_batch_size={size}"
        size //= 2
    if layout.data_parallel_size > 1:
        yield from _sharded_further(layout)
    for axis in ("tp", "pp"):
        yield from _split_further(layout, axis)


def _sharded_further(layout: LayoutSpec) -> Iterator[tuple[LayoutSpec, str]]:
    """States over more of the data-parallel ranks, or more kinds of them."""
    if layout.zero_stage < 3 and layout.dp_shard > 1:
        yield replace(layout, zero_stage=3), "zero_stage=3"
    if layout.dp_replicate > 1:
        shard = layout.data_parallel_size
        yield (
            replace(layout, dp_shard=shard, dp_replicate=1, zero_stage=3),
            f"dp_shard={shard},dp_replicate=1,zero_stage=3",
        )


def _split_further(layout: LayoutSpec, axis: str) -> Iterator[tuple[LayoutSpec, str]]:
    """More tensor or pipeline parallel ranks, taken from data parallelism."""
    if axis == "pp" and layout.stage_layers is not None:
        return
    for data_axis in ("dp_replicate", "dp_shard"):
        for factor in (2, 4, 8):
            ranks = getattr(layout, data_axis)
            if ranks % factor or ranks == 1:
                continue
            changed = {axis: getattr(layout, axis) * factor, data_axis: ranks // factor}
            words = ",".join(f"{key}={value}" for key, value in changed.items())
            if axis == "tp":
                changed["sp"] = True
            if data_axis == "dp_shard" and changed["dp_shard"] == 1:
                changed["zero_stage"] = 0
            yield replace(layout, **changed), words
