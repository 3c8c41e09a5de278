"""What is predicted for each row, next to what was printed."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from meshfit.breakdown import MemoryBreakdown, Prediction
from meshfit.errors import InputError
from meshfit.mesh.candidates import Candidates
from meshfit.predict.costs.constants import shipped_constants
from meshfit.predict.estimate import estimate
from meshfit.predict.estimates import Estimates
from meshfit.predict.time.spread import memory_spread
from meshfit.predict.verdict import Verdict
from meshfit.validate.frameworks import read_job
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import NotModelledError, TruthRow

FITS_FRACTION = 0.90
"""Share of the capacity that memory must stay within to be called ``fits`` (SCORING.md)."""


@dataclass(frozen=True, kw_only=True)
class RowPrediction:
    """What is predicted for one row; ``reason`` says why, where nothing is.

    Attributes:
        memory: of the rank whose memory the row prints, bytes.
        fullest: of the rank that holds most, which decides the verdict.
        prediction: the whole prediction, of the rank that holds most.
    """

    row: TruthRow
    job: RowJob | None = None
    prediction: Prediction | None = None
    memory: MemoryBreakdown | None = None
    reason: str | None = None

    @property
    def verdict(self) -> Verdict | None:
        """Whether the fullest rank fits; from allocated memory to reserved, both with context."""
        if self.prediction is None or self.job is None:
            return None
        fullest = self.prediction.memory
        context = fullest.context or 0
        capacity = self.job.topology.accelerator.memory_bytes
        if fullest.allocated + context > capacity:
            return "does_not_fit"
        return "fits" if fullest.total <= FITS_FRACTION * capacity else "tight"

    def memory_of_kind(self, kind: str | None) -> float | None:
        """Predicted bytes of one kind of memory: allocated, reserved or device."""
        if self.memory is None:
            return None
        reserved = self.memory.reserved or self.memory.allocated
        by_kind = {
            "allocated": self.memory.allocated,
            "reserved": reserved,
            "device": reserved + (self.memory.context or 0),
        }
        return None if kind is None else by_kind.get(kind)

    def memory_interval(self, kind: str | None) -> tuple[float, float] | None:
        """80 % interval of that kind of memory, in bytes."""
        value = self.memory_of_kind(kind)
        if value is None or self.memory is None or self.job is None:
            return None
        allocated, reserved = (self.memory_of_kind(name) or 0 for name in ("allocated", "reserved"))
        held = allocated if kind == "allocated" else reserved
        spread = memory_spread(
            allocated=np.array([allocated]),
            reserved=np.array([held]),
            context=np.array([value - held]),
            profile=self.job.profile,
            constants=shipped_constants(),
            assumptions=len(self.job.assumed),
        )
        return value / float(spread[0]), value * float(spread[0])


def predict_row(row: TruthRow) -> RowPrediction:
    """The prediction of one row; see ``predict_rows`` for many."""
    return predict_rows([row])[0]


def predict_rows(rows: Sequence[TruthRow]) -> list[RowPrediction]:
    """The prediction of every row, in order.

    Rows of one workload on one cluster under one engine are computed together.
    """
    done: dict[int, RowPrediction] = {}
    together: dict[object, list[tuple[int, RowJob]]] = defaultdict(list)
    for index, row in enumerate(rows):
        try:
            job = read_job(row)
        except (NotModelledError, InputError) as error:
            done[index] = RowPrediction(row=row, reason=str(error))
        else:
            together[workload(job)].append((index, job))
    for members in together.values():
        done |= _predict_together(members)
    return [done[index] for index in range(len(rows))]


def workload(job: RowJob) -> object:
    """What jobs that are computed together share. Models and clusters are cached by their columns,
    so that the same one is the same object."""
    return (id(job.model), job.training, id(job.topology), id(job.profile))


def _predict_together(members: Sequence[tuple[int, RowJob]]) -> Mapping[int, RowPrediction]:
    job = members[0][1]
    layouts = list(dict.fromkeys(member.layout for _, member in members))
    try:
        estimates = estimate(
            job.model, job.training, job.topology, Candidates.from_layouts(layouts), job.profile
        )
    except InputError as error:
        return {
            index: RowPrediction(row=member.row, job=member, reason=str(error))
            for index, member in members
        }
    where = {layout: position for position, layout in enumerate(layouts)}
    return {
        index: _row_prediction(member, estimates, where[member.layout]) for index, member in members
    }


def _row_prediction(job: RowJob, estimates: Estimates, position: int) -> RowPrediction:
    prediction = estimates.prediction(position)
    memory = prediction.memory
    if job.memory_of == "last":
        memory = estimates.ranks(position)[-1]
    return RowPrediction(row=job.row, job=job, prediction=prediction, memory=memory)
