"""Tiers 0 to 2: every legal layout estimated, the best of them simulated, all ranked."""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshfit.errors import InputError
from meshfit.funnel.space.calibrating import Learned, basis_of, learn
from meshfit.funnel.space.estimating import modelled
from meshfit.funnel.space.nothing_legal import nothing_legal
from meshfit.job.spec import Job
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.generate import Generated, generate
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.estimate import estimate_on
from meshfit.predict.estimates import Estimates
from meshfit.predict.simulate.tier2 import num_actions, simulated
from meshfit.predict.verdict import DOES_NOT_FIT, VERDICTS, verdict_codes

SIMULATED_LAYOUTS = 200
"""At most so many of the best by closed form are timed by simulation and ranked by that."""
SIMULATED_ACTIONS = 2_000_000
"""Actions of all of them together: fewer are simulated where a step has thousands (seconds)."""
LEAST_SIMULATED = 20


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The space of one job.

    ``verdicts`` holds indices into ``VERDICTS``; ``order`` ranks candidates, the best first:
    those that fit before the tight ones, each by predicted tokens per second, before the rest by the
    memory that they need. The first ``num_simulated`` of it are timed by simulation, and ranked among
    themselves. ``learned`` is what earlier runs have corrected.
    """

    job: Job
    generated: Generated
    estimates: Estimates
    verdicts: NDArray[np.int8]
    order: NDArray[np.int64]
    num_simulated: int
    learned: Learned
    seconds_by_tier: dict[str, float]

    def __len__(self) -> int:
        return len(self.generated.candidates)

    def layout(self, index: int) -> LayoutSpec:
        return self.generated.candidates.layout(index)

    def verdict(self, index: int) -> str:
        return VERDICTS[int(self.verdicts[index])]

    def rank_of(self, layout: LayoutSpec) -> int | None:
        """Place of a layout in ``order``, from 1; None where it is not in the space."""
        index = self.generated.candidates.find(layout)
        return None if index is None else int(np.flatnonzero(self.order == index)[0]) + 1

    def fitting_order(self) -> NDArray[np.int64]:
        """``order`` without the layouts that do not fit."""
        fitting: NDArray[np.int64] = self.order[self.verdicts[self.order] != DOES_NOT_FIT]
        return fitting


def make_plan(job: Job) -> Plan:
    """The legal space of ``job``, estimated and ranked.

    Layouts that cannot be predicted are counted among the rejected, as ``not_modelled``.

    Raises:
        InputError: no mesh is legal (the message says why and what would work), or the engine is
            none to plan a training job for.
    """
    started = time.perf_counter()
    generated = _modelled_only(legal_space(job), job)
    generated_at = time.perf_counter()
    if not len(generated.candidates):
        raise InputError(nothing_legal(job, generated))
    learned = learn(job)
    estimates, verdicts = _in_closed_form(job, generated.candidates, learned)
    order = ranking(estimates, verdicts)
    estimated_at = time.perf_counter()
    best = _to_simulate(order, estimates)
    estimates = simulated(estimates, best)
    best = best[ranking(estimates.take(best), verdicts[best])]
    return Plan(
        job=job,
        generated=generated,
        estimates=estimates,
        verdicts=verdicts,
        order=np.concatenate([best, order[len(best) :]]),
        num_simulated=len(best),
        learned=learned,
        seconds_by_tier={
            "rules": generated_at - started,
            "estimate": estimated_at - generated_at,
            "simulate": time.perf_counter() - estimated_at,
        },
    )


def ranking(estimates: Estimates, verdicts: NDArray[np.int8]) -> NDArray[np.int64]:
    """Rows, the best first: by verdict, then what can run by speed and what cannot by memory."""
    return np.lexsort(_merits(estimates, verdicts))


def would_be_rank(plan: Plan, estimates: Estimates, verdicts: NDArray[np.int8]) -> int:
    """Place, from 1, that the one layout of ``estimates`` would have among those of the plan."""
    ahead = np.zeros(len(plan), dtype=bool)
    own = _merits(estimates, verdicts)
    for theirs, mine in zip(_merits(plan.estimates, plan.verdicts), own, strict=True):
        ahead = (theirs < mine) | ((theirs == mine) & ahead)
    return 1 + int(np.count_nonzero(ahead))


def _merits(estimates: Estimates, verdicts: NDArray[np.int8]) -> tuple[NDArray[Any], ...]:
    """What rows are ranked by, the smaller the better: the last decides, those before it ties."""
    lacking = np.where(verdicts == DOES_NOT_FIT, estimates.memory_middle_bytes, 0.0)
    return -estimates.tokens_per_s, lacking, verdicts


def _to_simulate(order: NDArray[np.int64], estimates: Estimates) -> NDArray[np.int64]:
    best = order[:SIMULATED_LAYOUTS]
    within = np.cumsum(num_actions(estimates, best)) <= SIMULATED_ACTIONS
    return best[: max(LEAST_SIMULATED, int(np.count_nonzero(within)))]


def legal_space(job: Job) -> Generated:
    """Every legal layout of ``job``, and what rules rejected: tier 0 alone.

    Raises:
        InputError: as ``make_plan``.
    """
    _require_one_training_engine(job)
    generated = generate(job.model, job.training, job.topology, job.profile, job.search)
    if not len(generated.candidates):
        raise InputError(nothing_legal(job, generated))
    return generated


def estimate_candidates(job: Job, candidates: Candidates) -> tuple[Estimates, NDArray[np.int8]]:
    """Estimates of a few given layouts of a job, all of them simulated, and their verdicts."""
    estimates, verdicts = _in_closed_form(job, candidates, learn(job))
    return simulated(estimates, np.arange(len(candidates))), verdicts


def _in_closed_form(
    job: Job, candidates: Candidates, learned: Learned
) -> tuple[Estimates, NDArray[np.int8]]:
    estimates = estimate_on(basis_of(job, learned), candidates)
    return estimates, verdicts_of(job, estimates)


def verdicts_of(job: Job, estimates: Estimates) -> NDArray[np.int8]:
    return verdict_codes(
        middle_bytes=estimates.memory_middle_bytes,
        high_bytes=estimates.memory_high_bytes,
        capacity_bytes=job.topology.accelerator.memory_bytes,
        headroom_fraction=job.headroom_fraction,
    )


def _require_one_training_engine(job: Job) -> None:
    if job.other_engines:
        named = ", ".join((job.profile.name, *job.other_engines))
        raise InputError(
            f"engine [{named}]: this version plans for one engine; write engine: {job.profile.name}"
        )
    if job.profile.kind == "serving":
        raise InputError(
            f"engine {job.profile.name} serves, and workload.kind is training; `meshfit check` says "
            f"what its rules make of one layout"
        )


def _modelled_only(generated: Generated, job: Job) -> Generated:
    """What can be predicted; for the native engine that is everything."""
    kept = modelled(generated.candidates, job.model.num_hidden_layers)
    left_out = int(np.count_nonzero(~kept))
    if not left_out:
        return generated
    return replace(
        generated,
        candidates=generated.candidates.take(kept),
        rejected=generated.rejected | {"not_modelled": left_out},
        examples=generated.examples
        | {"not_modelled": generated.candidates.layout(int(np.argmin(kept)))},
    )
