"""A program as waves: actions that can be timed together, for a timeline in a few array operations.

Each action waits for the one before it on its rank and for one on a neighbouring stage. Its wave is
the longest chain of such waits before it; what is in one wave depends on earlier waves alone.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from meshfit.errors import InputError
from meshfit.predict.shape.schedules.action import KINDS
from meshfit.predict.shape.schedules.program import Program, program

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

KEPT_WAVES = 64
"""Those of 16 ranks, 3 virtual stages and 2048 micro-batches take 13 MiB, usual ones under 1."""

FORWARD, BACKWARD, INPUT, WEIGHT = (KINDS.index(kind) for kind in KINDS)


@dataclass(frozen=True, kw_only=True)
class Waves:
    """The actions of a program in an order in which each comes after all it waits for.

    Attributes:
        bounds: wave w is ``bounds[w]:bounds[w + 1]`` of the arrays below, of one entry an action.
        rank, stage, micro_batch, kind: whose it is, where, of what, and its index in ``KINDS``.
        before: the action before it on its rank; ``len(self)``, one past the last, where none.
        source: the action whose result it takes; likewise.
        crosses: whether that result comes from another rank.
        taker: the action on another rank that takes its result; likewise.
        is_first, is_last: whether it is the first forward, or what completes the last backward, of
            its stage.
        by_rank: indices of each rank's actions, in its order.
    """

    bounds: tuple[int, ...]
    rank: IntArray
    stage: IntArray
    micro_batch: IntArray
    kind: IntArray
    before: IntArray
    source: IntArray
    crosses: BoolArray
    taker: IntArray
    is_first: BoolArray
    is_last: BoolArray
    by_rank: tuple[IntArray, ...]

    def __len__(self) -> int:
        return len(self.kind)


@lru_cache(maxsize=KEPT_WAVES)
def waves_of(schedule: str, pp: int, vpp: int, micro_batches: int) -> Waves:
    """Waves of a schedule's program, with torch's rounds."""
    return make_waves(program(schedule, pp, vpp, micro_batches))


def make_waves(made: Program) -> Waves:
    """Waves of a program.

    Raises:
        InputError: its actions wait for each other in a circle, as an interleaved schedule's do whose
            micro-batches make no equal rounds.
    """
    ends = list(accumulate(len(actions) for actions in made.ranks))
    starts = [0, *ends[:-1]]
    listed = [one for actions in made.ranks for one in actions]
    kind = np.array([KINDS.index(one.kind) for one in listed])
    stage = np.array([one.stage for one in listed])
    micro_batch = np.array([one.micro_batch for one in listed])
    rank = np.repeat(np.arange(made.pp), [len(actions) for actions in made.ranks])
    before = np.arange(-1, len(listed) - 1)
    before[starts] = -1
    source = _sources(kind, stage, micro_batch, made.pp * made.vpp, made.micro_batches)
    depth = _depths(source, starts, ends)
    order = np.argsort(depth, kind="stable")
    place = np.append(np.argsort(order, kind="stable"), len(listed))
    crosses = (source >= 0) & (rank[source] != rank)
    taker = np.full(len(listed), -1)
    taker[source[crosses]] = np.flatnonzero(crosses)
    starts_wave = np.flatnonzero(np.diff(depth[order], prepend=-1))
    return Waves(
        bounds=(*starts_wave.tolist(), len(listed)),
        rank=rank[order],
        stage=stage[order],
        micro_batch=micro_batch[order],
        kind=kind[order],
        before=place[before[order]],
        source=place[source[order]],
        crosses=crosses[order],
        taker=place[taker[order]],
        is_first=_ends_of_stage(stage, kind == FORWARD, first=True)[order],
        is_last=_ends_of_stage(stage, (kind == BACKWARD) | (kind == WEIGHT), first=False)[order],
        by_rank=tuple(place[start:end] for start, end in zip(starts, ends, strict=True)),
    )


def _sources(
    kind: IntArray, stage: IntArray, micro_batch: IntArray, num_stages: int, micro_batches: int
) -> IntArray:
    """The action on a neighbouring stage whose result each action takes; -1 where none.

    A forward takes the stage before's, a backward (or its input half) that of the stage behind, on
    the last stage its own forward's; the weight half has what it needs on its rank.
    """
    forwards, backwards = (np.full((num_stages, micro_batches), -1) for _ in range(2))
    is_forward, goes_back = kind == FORWARD, (kind == BACKWARD) | (kind == INPUT)
    forwards[stage[is_forward], micro_batch[is_forward]] = np.flatnonzero(is_forward)
    backwards[stage[goes_back], micro_batch[goes_back]] = np.flatnonzero(goes_back)
    of_forward = np.vstack([np.full(micro_batches, -1), forwards[:-1]])
    of_backward = np.vstack([backwards[1:], forwards[-1:]])
    source = np.full(len(kind), -1)
    source[is_forward] = of_forward[stage[is_forward], micro_batch[is_forward]]
    source[goes_back] = of_backward[stage[goes_back], micro_batch[goes_back]]
    return source


def _depths(source: IntArray, starts: list[int], ends: list[int]) -> IntArray:
    """The longest chain of waits before each action, rank by rank as far as each can go."""
    sources, depth = source.tolist(), [-1] * len(source)
    at = list(starts)
    waiting = [rank for rank, end in enumerate(ends) if at[rank] < end]
    while waiting:
        moved = False
        for rank in waiting:
            here, end = at[rank], ends[rank]
            last = depth[here - 1] if here > starts[rank] else -1
            while here < end and (sources[here] < 0 or depth[sources[here]] >= 0):
                last = max(last, depth[sources[here]] if sources[here] >= 0 else -1) + 1
                depth[here] = last
                here += 1
            moved = moved or here > at[rank]
            at[rank] = here
        if not moved:
            raise InputError("the schedule has no order: its micro-batches make no equal rounds")
        waiting = [rank for rank in waiting if at[rank] < ends[rank]]
    return np.array(depth)


def _ends_of_stage(stage: IntArray, among: BoolArray, *, first: bool) -> BoolArray:
    """The first or the last of the picked actions of every stage; each stage lies on one rank."""
    picked = np.flatnonzero(among)
    if not first:
        picked = picked[::-1]
    _, position = np.unique(stage[picked], return_index=True)
    marked = np.zeros(len(stage), dtype=np.bool_)
    marked[picked[position]] = True
    return marked
