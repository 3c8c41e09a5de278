"""What the end of a step waited for, link by link back to its start."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from meshfit.predict.shape.schedules.action import KINDS
from meshfit.predict.simulate.timeline import AFTER_NORM, Timeline

ROUNDING_S = 1e-12
"""Relative to the step: less than this apart, two moments are one."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A stretch of the critical path on one pipeline rank.

    Attributes:
        what: ``F``, ``B``, ``I`` or ``W`` of a micro-batch on a stage; ``send_recv.pp``;
            ``all_gather.dp_shard`` before a first forward, ``reduce_scatter.dp_shard`` after a last
            backward; or a term of the step's end.
        stage, micro_batch: of an action; None of others.
    """

    rank: int
    what: str
    start_s: float
    end_s: float
    stage: int | None = None
    micro_batch: int | None = None

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


def critical_path(timeline: Timeline, index: int) -> tuple[Segment, ...]:
    """The critical path of one layout in order of time; its seconds sum to the step's."""
    ending, rank = _ending(timeline, index)
    action = int(timeline.waves.by_rank[rank][-1])
    backwards = [*ending, *_actions(timeline, index, action)]
    return tuple(segment for segment in reversed(backwards) if segment.seconds > 0)


def _ending(timeline: Timeline, index: int) -> tuple[list[Segment], int]:
    """What comes after the last backward, the last first, and the rank whose backward that is."""
    after = [_sum(tail, index, after_norm=True) for tail in timeline.tails]
    norm_at = np.broadcast_to(timeline.norm_at, timeline.ends.shape)[:, index]
    last = int(np.argmax(norm_at + after))
    waits_for_all = timeline.group.training.max_grad_norm is not None
    first = int(np.argmax(_summed(timeline, index))) if waits_for_all else last
    segments = _tail(timeline, last, index, float(norm_at[last]), after_norm=True)
    started = float(timeline.ends[first, index])
    segments = _tail(timeline, first, index, started, after_norm=False) + segments
    return segments[::-1], first


def _summed(timeline: Timeline, index: int) -> list[float]:
    return [
        float(end) + _sum(tail, index, after_norm=False)
        for end, tail in zip(timeline.ends[:, index], timeline.tails, strict=True)
    ]


def _sum(tail: dict[str, np.ndarray], index: int, *, after_norm: bool) -> float:
    return sum(float(t[index]) for name, t in tail.items() if (name in AFTER_NORM) == after_norm)


def _tail(
    timeline: Timeline, rank: int, index: int, start_s: float, *, after_norm: bool
) -> list[Segment]:
    segments = []
    for name, seconds in timeline.tails[rank].items():
        if (name in AFTER_NORM) == after_norm:
            end_s = start_s + float(seconds[index])
            segments.append(Segment(rank=rank, what=name, start_s=start_s, end_s=end_s))
            start_s = end_s
    return segments


def _actions(timeline: Timeline, index: int, action: int) -> Iterator[Segment]:
    """The chain of actions and transfers that ends in ``action``, the last first."""
    waves, played = timeline.waves, timeline.played
    none, apart = len(waves), ROUNDING_S * float(timeline.step_s[index])
    yield from _held(timeline, index, action)
    while action != none:
        rank, start = int(waves.rank[action]), float(played.start[action, index])
        yield Segment(
            rank=rank,
            what=KINDS[waves.kind[action]],
            start_s=start,
            end_s=float(played.finish[action, index]),
            stage=int(waves.stage[action]),
            micro_batch=int(waves.micro_batch[action]),
        )
        before, source = int(waves.before[action]), int(waves.source[action])
        free = float(played.released[before, index]) if before != none else 0.0
        arrived = float(played.arrived[action, index])
        if max(free, arrived) < start - apart:
            yield Segment(rank=rank, what="all_gather.dp_shard", start_s=0.0, end_s=start)
            return
        if free >= arrived - apart:
            action = before
            if action != none:
                yield from _held(timeline, index, action)
        else:
            action = _later(timeline, before, source, index)
            sent = float(played.finish[action, index])
            yield Segment(rank=rank, what="send_recv.pp", start_s=sent, end_s=start)


def _held(timeline: Timeline, index: int, action: int) -> Iterator[Segment]:
    """What a rank does between an action and its next, the last first."""
    played, rank = timeline.played, int(timeline.waves.rank[action])
    finish = float(played.finish[action, index])
    scattered = finish + float(timeline.scatters[action, index])
    released = float(played.released[action, index])
    yield Segment(rank=rank, what="send_recv.pp", start_s=scattered, end_s=released)
    yield Segment(rank=rank, what="reduce_scatter.dp_shard", start_s=finish, end_s=scattered)


def _later(timeline: Timeline, before: int, source: int, index: int) -> int:
    """Which of two actions ended later; a transfer waits for both where it is taken in turn."""
    if before == len(timeline.waves):
        return source
    finish = timeline.played.finish[:, index]
    return before if finish[before] > finish[source] else source
