"""Tier 3: the leaders' real program on fake tensors, beside what the formulas say of them."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from meshfit.breakdown import MEMORY_CATEGORIES
from meshfit.errors import InputError, RunError
from meshfit.funnel.check.dry_run import dry_run_document
from meshfit.funnel.plan.meshes import leaders_of
from meshfit.funnel.space.planning import Plan
from meshfit.mesh.groups import ranks_by_place
from meshfit.mesh.spec import AXES, LayoutSpec
from meshfit.report.documents.plan import DryRunRow

RUNNER = "native"
"""The engine whose program a dry run runs: meshfit's own."""

SHOWN = (*MEMORY_CATEGORIES, "allocated", "reserved")


def dry_run_rows(plan: Plan, count: int) -> tuple[list[DryRunRow], float]:
    """``dry_run`` of ``plan --json``: the best layouts of the first ``count`` meshes, each on the rank
    that is predicted to hold most; and the seconds that all took.

    A layout that the runner cannot run has its reason under ``refused``.

    Raises:
        InputError: the job plans for an engine whose program is not the runner's.
    """
    engine = plan.job.profile.name
    if engine != RUNNER:
        raise InputError(
            f"--dry-run runs the program of engine {RUNNER}; this job plans for {engine}, whose "
            f"memory is another: leave --dry-run out, or plan with engine: {RUNNER}"
        )
    started = time.perf_counter()
    rows = [_row(plan, int(index)) for index in leaders_of(plan).rows[:count]]
    return rows, time.perf_counter() - started


def _row(plan: Plan, index: int) -> DryRunRow:
    layout = plan.layout(index)
    fullest = int(plan.estimates.worst_rank[index])
    rank = _rank_at(layout, plan.job.profile.rank_order, pp=fullest)
    row = DryRunRow(
        label=layout.label,
        layout=layout.as_json(),
        rank=rank,
        predicted=_shown(plan.estimates.prediction(index).memory.as_json()),
        memory=None,
        peak_at=None,
        out_of_memory=None,
        seconds=None,
        refused=None,
    )
    try:
        found = dry_run_document(plan.job, layout, rank=rank)
    except (InputError, RunError) as error:
        row["refused"] = str(error)
        return row
    row["memory"] = _shown(found["memory"])
    row["peak_at"] = found["memory"]["peak_at"]
    row["out_of_memory"] = found["memory"].get("out_of_memory")
    row["seconds"] = found["seconds"]
    return row


def _rank_at(layout: LayoutSpec, order: Sequence[str], *, pp: int) -> int:
    """The first rank of a pipeline rank, where ranks are laid over the axes in ``order``."""
    by_place = ranks_by_place(layout, order=order)
    return int(by_place[tuple(pp if axis == "pp" else 0 for axis in AXES)])


def _shown(memory: Mapping[str, Any]) -> dict[str, int | None]:
    """Bytes by category, of all together, and reserved (None on CPU)."""
    return {name: memory[name] for name in SHOWN}
