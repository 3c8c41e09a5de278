"""What real runs teach the next plan: rows of the calibration file, and corrections from them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import numpy as np

from meshfit import __version__
from meshfit.cluster.topology import Topology
from meshfit.compare.candidate import MeasuredCandidate
from meshfit.compare.residuals import StepResidual, calibrated
from meshfit.errors import InputError
from meshfit.funnel.space.basis import uncorrected_basis
from meshfit.job.spec import Job
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.basis import Basis
from meshfit.predict.calibration import (
    COMPUTED_TERMS,
    SHARED_TERMS,
    Calibration,
)
from meshfit.predict.estimate import estimate_on
from meshfit.predict.estimates import Estimates
from meshfit.predict.simulate.tier2 import simulated
from meshfit.predict.time.terms import TERMS
from meshfit.record.residuals import read_residuals, store_residuals
from meshfit.record.schema import Residual
from meshfit.workload.families import read_family

NEWEST_LAYOUTS = 100
"""Of the rows that apply, so many of the newest are learned from."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """Corrections for one job.

    Attributes:
        file: that they were read from; None where none is to be used.
        rows: it holds; ``left_out``: how many of them say nothing here, by reason.
    """

    calibration: Calibration
    file: Path | None = None
    rows: int = 0
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def changes_anything(self) -> bool:
        return bool(self.calibration.step_time.samples or self.calibration.memory.samples)


def learn(job: Job) -> Learned:
    """What the job's calibration file says of its accelerator and engine.

    Every row is predicted anew by today's formulas. Only runs on the same accelerator under the same
    engine and version count; for time also in the same precision and on the same kind of topology,
    and where ranks shared cores, or a CPU was measured, on this very machine.

    Raises:
        InputError: the file is none.
    """
    plain = uncorrected_basis(job).calibration
    if job.calibration is None:
        return Learned(calibration=plain)
    read = read_residuals(job.calibration)
    left_out = Counter(read.unreadable)
    used: list[Residual] = []
    for row in reversed(read.rows):
        reason = _why_not_here(row, job)
        if reason is None and len(used) < NEWEST_LAYOUTS:
            used.append(row)
        else:
            left_out[reason or "older than the newest that are used"] += 1
    steps, ratios = [], []
    for row, predicted in _predicted_anew(used, job, left_out):
        if row.measured_memory_bytes:
            ratios.append(row.measured_memory_bytes / predicted.memory_bytes)
        if (reason := _why_no_time(row, job)) is None:
            steps.append(_step_residual(row, predicted))
        else:
            left_out[reason] += 1
    return Learned(
        calibration=calibrated(plain, steps, ratios),
        file=job.calibration,
        rows=len(read.rows) + sum(read.unreadable.values()),
        left_out=dict(left_out),
    )


def basis_of(job: Job, learned: Learned | None = None) -> Basis:
    """What predictions of a job rest on; ``learned`` where that was read already.

    Raises:
        InputError: the calibration or the curves file is broken, or says that the fabric is.
    """
    return replace(uncorrected_basis(job), calibration=(learned or learn(job)).calibration)


def store(job: Job, measured: Sequence[MeasuredCandidate], plan_hash: str) -> int:
    """Add what was measured to the job's calibration file; how many rows are new.

    A layout that failed, or whose loss was not right, teaches nothing and has no row.

    Raises:
        InputError: the file is none, or cannot be written.
    """
    proven = [one for one in measured if _is_proven(one)]
    if job.calibration is None or not proven:
        return 0
    return store_residuals(job.calibration, residuals(job, proven, plan_hash))


def residuals(job: Job, proven: Sequence[MeasuredCandidate], plan_hash: str) -> list[Residual]:
    """One row a layout, with what is predicted of it without corrections."""
    layouts = [one.layout for one in proven]
    predictions = _uncorrected(job, layouts)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    rows = []
    for one, predicted in zip(proven, predictions, strict=True):
        assert one.step_time_s is not None
        memory = one.memory
        rows.append(
            Residual(
                recorded_at=now,
                meshfit=__version__,
                plan_hash=plan_hash,
                model=job.model.name,
                model_config=dict(job.model.config),
                training=job.training,
                topology=job.topology,
                engine=job.profile.name,
                engine_version=job.profile.version,
                layout=one.layout,
                predicted_terms=predicted.terms,
                predicted_memory_bytes=predicted.memory_bytes,
                measured_step_s=one.step_time_s,
                measured_memory_bytes=None
                if memory is None
                else memory.reserved or memory.allocated,
                timed_steps=len(one.step_s),
                software=_software(one),
            )
        )
    return rows


def _is_proven(one: MeasuredCandidate) -> bool:
    right = one.parity is None or one.parity.ok
    return one.outcome == "ok" and right and one.step_time_s is not None


def _software(one: MeasuredCandidate) -> dict[str, str]:
    found = (row.result.environment.get("packages") for row in one.records if row.result)
    return dict(next((packages for packages in found if packages), {}))


# Which rows


def _why_not_here(row: Residual, job: Job) -> str | None:
    """Why nothing is learned from a row; None where it counts."""
    if row.topology.accelerator.name != job.topology.accelerator.name:
        return "on another accelerator"
    if (row.engine, row.engine_version) != (job.profile.name, job.profile.version):
        return "under another engine or version"
    return None


def _why_no_time(row: Residual, job: Job) -> str | None:
    """Why its step time is not learned from; None where it is."""
    there, here = row.topology, job.topology
    if row.training.precision != job.training.precision:
        return "step time in another precision"
    if _kind(there) != _kind(here):
        return "step time on another kind of topology"
    on_cpu = here.accelerator.device_type == "cpu"
    if on_cpu and there.hosts != here.hosts:
        return "step time on another machine"
    if there.oversubscribed or here.oversubscribed:
        same = there.hosts == here.hosts and there.num_accelerators == here.num_accelerators
        if not same or there.oversubscribed != here.oversubscribed:
            return "step time where ranks shared cores"
    return None


def _kind(topology: Topology) -> tuple[str, ...]:
    """Kinds of the levels that join anything, innermost first."""
    return tuple(level.kind for level in topology.levels if level.size > 1)


# What was predicted


@dataclass(frozen=True, kw_only=True)
class _Predicted:
    """Without corrections: seconds by term, and bytes of the allocator on the fullest rank."""

    terms: dict[str, float]
    memory_bytes: int


def _predicted_anew(
    rows: Sequence[Residual], job: Job, left_out: Counter[str]
) -> Iterator[tuple[Residual, _Predicted]]:
    """Rows with what is predicted of them today, as of ``job``."""
    by_job = sorted(rows, key=lambda row: (row.plan_hash, row.recorded_at))
    for _, same in groupby(by_job, key=lambda row: (row.plan_hash, row.recorded_at)):
        some = list(same)
        first = some[0]
        layouts = [row.layout for row in some]
        try:
            model = read_family(first.model, first.model_config)
            ran = replace(job, model=model, training=first.training, topology=first.topology)
            found = _uncorrected(ran, layouts)
        except InputError:
            left_out["no longer predicted"] += len(some)
            continue
        yield from zip(some, found, strict=True)


def _uncorrected(job: Job, layouts: Sequence[LayoutSpec]) -> list[_Predicted]:
    candidates = Candidates.from_layouts(list(layouts))
    estimates = estimate_on(uncorrected_basis(job), candidates)
    timed = simulated(estimates, np.arange(len(candidates)))
    return [
        _Predicted(
            terms=_terms(timed, index), memory_bytes=round(float(timed.memory_reserved[index]))
        )
        for index in range(len(candidates))
    ]


def _terms(estimates: Estimates, index: int) -> dict[str, float]:
    seconds = zip(TERMS, estimates.time_terms[index], strict=True)
    return {name: float(value) for name, value in seconds if value}


def _step_residual(row: Residual, predicted: _Predicted) -> StepResidual:
    """Idle time goes to computation and collectives by their shares, which cause it."""
    terms = predicted.terms
    computed = sum(terms.get(name, 0.0) for name in COMPUTED_TERMS)
    shared = sum(terms.get(name, 0.0) for name in SHARED_TERMS)
    exposed = sum(terms.values()) - computed - shared
    grown = 1 + shared / (computed + exposed)
    return StepResidual(
        computed_s=computed * grown, exposed_s=exposed * grown, measured_s=row.measured_step_s
    )
