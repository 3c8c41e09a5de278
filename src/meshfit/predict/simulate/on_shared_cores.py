"""A timeline on cores that ranks share, from the one in which each rank has a core of its own."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meshfit.cluster.topology import Topology
from meshfit.predict.shape.schedules.play import Played
from meshfit.predict.simulate.stage import of_actions
from meshfit.predict.simulate.timeline import AFTER_NORM, Timeline
from meshfit.predict.time.terms import Terms, computed_s

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SharedTime:
    """Moments of a step in which each rank has a core, and when they come to pass on shared ones;
    both ascend, [moments, N]."""

    alone: FloatArray
    shared: FloatArray

    def __call__(self, moments: FloatArray) -> FloatArray:
        """When these moments come to pass, [..., N]."""
        found = np.empty(moments.shape)
        for layout in range(moments.shape[-1]):
            at, alone = moments[..., layout], self.alone[:, layout]
            beyond = np.maximum(0.0, at - alone[-1])
            found[..., layout] = np.interp(at, alone, self.shared[:, layout]) + beyond
        return found


def shared_time(starts: FloatArray, ends: FloatArray, cores_each: float) -> SharedTime:
    """Time as it passes where those who compute share the cores evenly.

    While ``k`` of them do, everything takes ``max(1, k * cores_each)`` times as long. So a rank that
    waits leaves its core to others, none has more than one, and the step is no shorter than all
    computation over all cores, nor than with a core each. What is under way on a link meanwhile is
    stretched as well, though it need not be.

    Args:
        starts, ends: of computation with a core a rank, [intervals, N].
        cores_each: what one of them takes, as a share of all cores.
    """
    moments = np.concatenate([np.zeros((1, starts.shape[1])), starts, ends])
    change = np.concatenate([[0], np.ones(len(starts)), -np.ones(len(ends))])
    order = np.argsort(moments, axis=0, kind="stable")
    alone = np.take_along_axis(moments, order, axis=0)
    slowed = np.maximum(1.0, np.cumsum(change[order], axis=0) * cores_each)
    passed = np.cumsum(slowed[:-1] * np.diff(alone, axis=0), axis=0)
    return SharedTime(alone=alone, shared=np.concatenate([np.zeros_like(alone[:1]), passed]))


def on_shared_cores(alone: Timeline, topology: Topology) -> Timeline:
    """The timeline of the cores there are, from the one with a core a rank."""
    assert topology.shared_cores is not None
    count = len(alone.group)
    computed = of_actions(alone.waves, alone.stages, lambda passed: computed_s(passed, count))
    stepped = np.stack([computed_s(tail, count) for tail in alone.tails])
    norm_at = np.broadcast_to(alone.norm_at, stepped.shape)
    starts = np.concatenate([alone.played.start, norm_at])
    ends = starts + np.concatenate([computed, stepped])
    ranks_each = topology.num_accelerators / alone.group.pipeline.pp
    later = shared_time(starts, ends, ranks_each / topology.shared_cores)
    lasted = later(ends) - later(starts)
    slowed = [
        _ratio(lasted[own].sum(axis=0), computed[own].sum(axis=0)) for own in alone.waves.by_rank
    ]
    slowed_steps = _ratio(lasted[len(computed) :], stepped)
    return replace(
        alone,
        played=Played(**{name: later(moments) for name, moments in vars(alone.played).items()}),
        tails=_tails(alone, later),
        rank_terms=tuple(
            _slowed(terms, passes, step)
            for terms, passes, step in zip(alone.rank_terms, slowed, slowed_steps, strict=True)
        ),
        ends=later(alone.ends),
        norm_at=later(alone.norm_at),
        step_s=later(alone.step_s),
    )


def _slowed(terms: Terms, passes: FloatArray, step: FloatArray) -> Terms:
    factors = {"compute": passes, "recompute": passes, "optimizer": step}
    return {name: seconds * factors.get(name, 1.0) for name, seconds in terms.items()}


def _tails(alone: Timeline, later: SharedTime) -> tuple[Terms, ...]:
    """Tails that last from the end of each rank's last action to the norm, and from it to their end."""
    norm_at = np.broadcast_to(alone.norm_at, alone.ends.shape)
    ratios = []
    for start, after_norm in ((alone.ends, False), (norm_at, True)):
        seconds = alone.tails_s(after_norm=after_norm)
        ratios.append(_ratio(later(start + seconds) - later(start), seconds))
    return tuple(
        {name: s * ratios[name in AFTER_NORM][rank] for name, s in tail.items()}
        for rank, tail in enumerate(alone.tails)
    )


def _ratio(shared_s: FloatArray, alone_s: FloatArray) -> FloatArray:
    return np.divide(shared_s, alone_s, out=np.ones_like(shared_s), where=alone_s > 0)
