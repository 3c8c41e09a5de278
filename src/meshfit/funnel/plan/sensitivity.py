"""``plan --sensitivity``: what the leaders make of assumptions that no one can check beforehand."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshfit.funnel.space.calibrating import basis_of
from meshfit.funnel.space.planning import Plan, ranking, verdicts_of
from meshfit.job.spec import Job
from meshfit.mesh.candidates import Candidates
from meshfit.predict.estimate import estimate_on
from meshfit.predict.estimates import Estimates
from meshfit.predict.simulate.tier2 import simulated
from meshfit.predict.verdict import DOES_NOT_FIT
from meshfit.workload.training import TrainingSpec

LEADERS = 5
"""Of the plan, followed over every assumption."""
CONTENDERS = 20
"""Of the plan, any of which may come to the front."""
AT_THE_END = 5
"""Best layouts under the last value of an assumption, which come to the contenders."""
HALVINGS = 5
"""Of the range in which the winner changes."""

IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """One thing that may be otherwise.

    Attributes:
        values: over which it is varied, from what harms nobody to what is rarely seen.
        of: what the workload is under a value; now: the value that the job has, None where
            predictions have their own.
        matters: whether it can move anything in a job.
    """

    name: str
    values: tuple[float, ...]
    of: Callable[[TrainingSpec, float], TrainingSpec]
    now: Callable[[TrainingSpec], float | None]
    matters: Callable[[Job], bool]


def _with_experts(training: TrainingSpec, value: float) -> TrainingSpec:
    return replace(training, runtime=replace(training.runtime, expert_imbalance=value))


def _assuming(name: str) -> Callable[[TrainingSpec, float], TrainingSpec]:
    def of(training: TrainingSpec, value: float) -> TrainingSpec:
        return replace(training, assume=replace(training.assume, **{name: value}))

    return of


ASSUMPTIONS: tuple[Assumption, ...] = (
    Assumption(
        name="expert_imbalance",
        values=(1.0, 1.1, 1.3, 1.6, 2.0, 3.0),
        of=_with_experts,
        now=lambda training: training.runtime.expert_imbalance,
        matters=lambda job: any(layer.moe is not None for layer in job.model.layers),
    ),
    Assumption(
        name="straggler",
        values=(1.0, 1.02, 1.05, 1.1, 1.2),
        of=_assuming("straggler"),
        now=lambda training: training.assume.straggler,
        matters=lambda job: job.topology.num_accelerators > 1,
    ),
    Assumption(
        name="contention",
        values=(1.0, 1.25, 1.5, 2.0, 3.0, 4.0),
        of=_assuming("contention"),
        now=lambda training: training.assume.contention,
        matters=lambda job: job.topology.num_hosts > 1,
    ),
    Assumption(
        name="length_imbalance",
        values=(1.0, 1.1, 1.25, 1.5, 2.0),
        of=_assuming("length_imbalance"),
        now=lambda training: training.assume.length_imbalance,
        matters=lambda job: job.topology.num_accelerators > 1,
    ),
)


def sensitivity_document(plan: Plan) -> list[dict[str, Any]]:
    """``sensitivity`` of ``plan --json``: one row an assumption that can move anything.

    ``leaders`` follows the first of the plan: step time and rank under each of ``values``, ranked
    among all contenders. ``changes`` has the values from which on another layout is the fastest that
    fits.
    """
    if not len(plan.fitting_order()):
        return []
    asked = [one for one in ASSUMPTIONS if one.matters(plan.job)]
    contenders = _Contenders(plan, asked)
    return [contenders.row(assumption) for assumption in asked]


class _Contenders:
    """Layouts that may win under some assumption, and their times under any."""

    def __init__(self, plan: Plan, asked: list[Assumption]) -> None:
        self._plan = plan
        best = plan.fitting_order()[:CONTENDERS]
        rows = np.concatenate([best, *(self._best_at_the_end(one) for one in asked)])
        self._rows: IntArray = np.array(list(dict.fromkeys(map(int, rows))), dtype=np.int64)
        self._candidates = plan.generated.candidates.take(self._rows)

    def row(self, assumption: Assumption) -> dict[str, Any]:
        under = {value: self._under(assumption, value) for value in assumption.values}
        now = assumption.now(self._plan.job.training)
        return {
            "assumption": assumption.name,
            "planned": now,
            "values": list(assumption.values),
            "leaders": [self._followed(index, under) for index in range(self._num_leaders)],
            "changes": list(self._changes(assumption, under)),
        }

    @property
    def _num_leaders(self) -> int:
        return min(LEADERS, len(self._rows))

    def _label(self, index: int) -> dict[str, Any]:
        layout = self._candidates.layout(index)
        return {"label": layout.label, "layout": layout.as_json()}

    def _followed(self, index: int, under: dict[float, "_Ranked"]) -> dict[str, Any]:
        return self._label(index) | {
            "step_time": [float(ranked.step_s[index]) for ranked in under.values()],
            "rank": [ranked.rank_of(index) for ranked in under.values()],
        }

    def _changes(
        self, assumption: Assumption, under: dict[float, "_Ranked"]
    ) -> Iterator[dict[str, Any]]:
        values = list(under)
        for below, above in pairwise(values):
            before, after = under[below].winner, under[above].winner
            if before != after:
                at = self._where(assumption, below, above, before)
                yield {"at": at, "from": self._label(before), "to": self._label(after)}

    def _where(self, assumption: Assumption, below: float, above: float, winner: int) -> float:
        """The value at which another than ``winner`` is fastest, between two values."""
        for _ in range(HALVINGS):
            middle = (below + above) / 2
            if self._under(assumption, middle).winner == winner:
                below = middle
            else:
                above = middle
        return above

    def _under(self, assumption: Assumption, value: float) -> "_Ranked":
        job = replace(self._plan.job, training=assumption.of(self._plan.job.training, value))
        estimates = _estimated(job, self._candidates, self._plan)
        timed = simulated(estimates, np.arange(len(self._candidates)))
        order = ranking(timed, verdicts_of(job, timed))
        return _Ranked(order=order, step_s=timed.step_middle_s)

    def _best_at_the_end(self, assumption: Assumption) -> IntArray:
        """By closed form over the whole space, under the last value."""
        plan = self._plan
        job = replace(plan.job, training=assumption.of(plan.job.training, assumption.values[-1]))
        estimates = _estimated(job, plan.generated.candidates, plan)
        verdicts = verdicts_of(job, estimates)
        order = ranking(estimates, verdicts)[:AT_THE_END]
        return np.asarray(order[verdicts[order] != DOES_NOT_FIT])


@dataclass(frozen=True, kw_only=True)
class _Ranked:
    """Contenders under one value: the best first, and seconds of a step."""

    order: IntArray
    step_s: NDArray[np.float64]

    @property
    def winner(self) -> int:
        return int(self.order[0])

    def rank_of(self, index: int) -> int:
        return int(np.flatnonzero(self.order == index)[0]) + 1


def _estimated(job: Job, candidates: Candidates, plan: Plan) -> Estimates:
    return estimate_on(basis_of(job, plan.learned), candidates)
