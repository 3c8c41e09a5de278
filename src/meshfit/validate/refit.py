"""The constants of the time model found again without a family, and the error there.

Each fit starts from the middle of every constant's range, so that nothing of the family left out
comes back through the shipped values.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import Candidates
from meshfit.predict.basis import Basis
from meshfit.predict.calibration import formula_only
from meshfit.predict.costs.constants import TimeConstants, shipped_constants
from meshfit.predict.costs.fitting import fit_constants, from_the_middle
from meshfit.predict.estimate import step_seconds
from meshfit.validate.error_scores import ErrorScore, Sample, score
from meshfit.validate.predictions import RowPrediction, workload
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import TruthRow
from meshfit.validate.scored import time_scored

FloatArray = NDArray[np.float64]

STEP = 1.02
"""Factor on a constant by which its slope is taken."""
ROUNDS = 20


@dataclass(frozen=True, kw_only=True)
class MeasuredSteps:
    """Jobs with the step times that were measured; equal jobs of one family are one of these.

    ``rows`` are all rows of each job, ``seconds`` the median of what they print.
    """

    jobs: tuple[RowJob, ...]
    rows: tuple[tuple[TruthRow, ...], ...]
    seconds: FloatArray

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(job.row.text("family") for job in self.jobs)

    def where(self, is_kept: Sequence[bool]) -> "MeasuredSteps":
        """Those that are kept."""
        return MeasuredSteps(
            jobs=tuple(itertools.compress(self.jobs, is_kept)),
            rows=tuple(itertools.compress(self.rows, is_kept)),
            seconds=self.seconds[np.array(is_kept)],
        )

    def predicted(self, constants: TimeConstants) -> FloatArray:
        """Seconds of a step of every job under given constants."""
        seconds = np.zeros(len(self.jobs))
        for members in _together(self.jobs).values():
            job = self.jobs[members[0]]
            basis = Basis(
                model=job.model,
                training=job.training,
                topology=job.topology,
                profile=job.profile,
                calibration=formula_only(job.topology, job.profile.name),
                constants=constants,
            )
            layouts = Candidates.from_layouts([self.jobs[index].layout for index in members])
            seconds[members] = step_seconds(layouts, basis)
        return seconds


def measured_steps(predictions: Sequence[RowPrediction]) -> MeasuredSteps:
    """The rows whose time counts and is modelled, equal jobs once with their median."""
    rows: dict[object, list[TruthRow]] = defaultdict(list)
    jobs: dict[object, RowJob] = {}
    for predicted in predictions:
        row, job = predicted.row, predicted.job
        if job is None or predicted.prediction is None or not time_scored(row):
            continue
        key = (row.text("family"), workload(job), job.layout)
        jobs.setdefault(key, job)
        rows[key].append(row)
    times = [[float(row.text("time_s")) for row in rows[key]] for key in jobs]
    return MeasuredSteps(
        jobs=tuple(jobs.values()),
        rows=tuple(tuple(rows[key]) for key in jobs),
        seconds=np.array([float(np.median(printed)) for printed in times]),
    )


@dataclass(frozen=True, kw_only=True)
class LinearSteps:
    """Logarithms of predicted seconds as a linear function of the logarithms of the constants.

    Exact at ``constants``; a fit that ends near them needs no further predictions, so that one set of
    slopes serves every family that is left out.
    """

    steps: MeasuredSteps
    constants: TimeConstants
    names: tuple[str, ...]
    logs: FloatArray
    """At ``constants``, [jobs]."""
    slopes: FloatArray
    """By the logarithm of each constant of ``names``, [jobs, constants]."""

    def predicted(self, constants: TimeConstants) -> FloatArray:
        """Seconds of every job."""
        moved = [math.log(constants[name] / self.constants[name]) for name in self.names]
        return np.asarray(np.exp(self.logs + self.slopes @ np.array(moved)))

    def where(self, is_kept: Sequence[bool]) -> "LinearSteps":
        """Those jobs that are kept."""
        kept = np.array(is_kept)
        return LinearSteps(
            steps=self.steps.where(is_kept),
            constants=self.constants,
            names=self.names,
            logs=self.logs[kept],
            slopes=self.slopes[kept],
        )


def linear_steps(steps: MeasuredSteps, constants: TimeConstants) -> LinearSteps:
    """Predictions around ``constants``, one more round of them for each fitted constant."""
    names = tuple(name for name, entry in constants.entries.items() if entry.is_fitted)
    logs = np.log(steps.predicted(constants))
    slopes = []
    for name in names:
        moved = constants.with_values({name: constants[name] * STEP})
        slopes.append((np.log(steps.predicted(moved)) - logs) / math.log(STEP))
    return LinearSteps(
        steps=steps, constants=constants, names=names, logs=logs, slopes=np.stack(slopes, axis=1)
    )


def fitted_to(linear: LinearSteps) -> TimeConstants:
    """Constants fitted to measured steps, from the middle of every range."""
    return fit_constants(
        linear.predicted,
        linear.steps.seconds,
        linear.steps.families,
        start=from_the_middle(linear.constants),
        rounds=ROUNDS,
    )


def leave_one_out(predictions: Sequence[RowPrediction]) -> Iterator[tuple[str, ErrorScore]]:
    """Family by family, its time score on dense models under constants fitted without it.

    Slopes are those around constants that a fit to all families ends at: from the middle of their
    ranges it ends too far from the shipped ones for slopes there to hold.
    """
    steps = measured_steps(predictions)
    near = fitted_to(linear_steps(steps, shipped_constants()))
    linear = linear_steps(steps, near)
    for family in sorted(set(steps.families)):
        own = [name == family for name in steps.families]
        constants = fitted_to(linear.where([not is_own for is_own in own]))
        yield family, _score_of(steps.where(own), constants)


def _score_of(steps: MeasuredSteps, constants: TimeConstants) -> ErrorScore:
    """Of all rows of dense models, as the scorer counts them."""
    predicted = steps.predicted(constants)
    return score(
        [
            Sample(
                row=row,
                measured=float(row.text("time_s")),
                predicted=float(value),
                interval=None,
            )
            for rows, value in zip(steps.rows, predicted, strict=True)
            for row in rows
            if row.text("arch") == "dense"
        ]
    )


def _together(jobs: Sequence[RowJob]) -> Mapping[object, list[int]]:
    """Positions of the jobs that are computed together."""
    together: dict[object, list[int]] = defaultdict(list)
    for index, job in enumerate(jobs):
        together[workload(job)].append(index)
    return together
