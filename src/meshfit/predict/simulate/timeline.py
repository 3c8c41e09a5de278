"""The timeline of one optimizer step of every layout of a group."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedules.play import Played
from meshfit.predict.shape.schedules.waves import Waves
from meshfit.predict.simulate.stage import StageCost
from meshfit.predict.time.exchange.machine import Machine
from meshfit.predict.time.step import waiting_s
from meshfit.predict.time.terms import TERMS, Terms, total

FloatArray = NDArray[np.float64]

AFTER_NORM = ("optimizer", "broadcast.dp_shard", "all_gather.dp_shard")
"""What of ``step.after_backward`` follows the norm of all gradients."""


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """One step of N layouts that share a program.

    Attributes:
        played: when every action runs, in the order of ``waves``.
        transfer: seconds in which what each action takes comes from another rank, [actions, N].
        scatters: seconds after the last backward of each stage in which its rank scatters gradients
            that were whole until then, [actions, N].
        stages: what each stage takes.
        tails: what each rank does after its last backward, by term.
        rank_terms: all that each rank does in the step, by term.
        ends: when each rank's last action has ended, [ranks, N].
        norm_at: when the norm of all gradients is known, which all wait for, [N]; without clipping
            when each rank's own are summed, [ranks, N].
        step_s: when the last rank is done, [N]; stragglers left out.
    """

    group: LayoutGroup
    machine: Machine
    waves: Waves
    played: Played
    transfer: FloatArray
    scatters: FloatArray
    stages: tuple[StageCost, ...]
    tails: tuple[Terms, ...]
    rank_terms: tuple[Terms, ...]
    ends: FloatArray
    norm_at: FloatArray
    step_s: FloatArray

    @cached_property
    def busy_s(self) -> FloatArray:
        """Seconds in which each rank computes or communicates, [ranks, N]."""
        return np.stack([total(terms, len(self.group)) for terms in self.rank_terms])

    def tails_s(self, *, after_norm: bool) -> FloatArray:
        """Seconds of each rank's tail before the norm, or after it, [ranks, N]."""
        return tails_s(self.tails, len(self.group), after_norm=after_norm)

    def terms(self) -> FloatArray:
        """Seconds by ``TERMS`` of the rank with least idle time, [N, terms]: the bubble is what it
        idles. Their sum is the step."""
        nothing = np.zeros(len(self.group))
        by_rank = np.array(
            [[terms.get(name, nothing) for name in TERMS] for terms in self.rank_terms]
        )
        busiest = np.argmax(self.busy_s, axis=0)
        terms = by_rank[busiest, :, np.arange(len(self.group))]
        terms[:, TERMS.index("bubble")] = np.maximum(0.0, self.step_s - terms.sum(axis=1))
        terms[:, TERMS.index("other")] += waiting_s(terms, self.group, self.machine)
        return np.asarray(terms)


def tails_s(tails: tuple[Terms, ...], count: int, *, after_norm: bool) -> FloatArray:
    """Seconds of what ranks do after their last backward, as far as it comes before the norm of all
    gradients or after it, [ranks, count]."""
    return np.stack(
        [
            total(
                {name: s for name, s in tail.items() if (name in AFTER_NORM) == after_norm}, count
            )
            for tail in tails
        ]
    )
