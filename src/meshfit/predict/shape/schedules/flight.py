"""Micro-batches that a rank holds at once, read off its program."""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from meshfit.mesh.stage_placement import stages_of_rank
from meshfit.predict.shape.schedules.action import Action, Kind
from meshfit.predict.shape.schedules.program import rank_order
from meshfit.predict.shape.schedules.rounds import torch_round

ENOUGH_ROUNDS = 2
"""Rounds of ``pp`` micro-batches after which a schedule holds no more than before."""


@dataclass(frozen=True, kw_only=True)
class Flight:
    """What one rank holds at its peak.

    Attributes:
        per_stage: micro-batches of each of its stages, in model order, whose forward has run and
            whose backward (of the input, where it is split) has not ended.
        put_off: those whose gradients of the input are done and those of the weights are not: what
            is kept for the latter are inputs of the matmuls and gradients of their outputs.
        accumulating: whether gradients of an earlier micro-batch exist by then.
    """

    per_stage: tuple[int, ...]
    put_off: tuple[int, ...]
    accumulating: bool


def peak_flight(schedule: str, rank: int, pp: int, vpp: int, micro_batches: int) -> Flight:
    """What a rank holds after the forward that leaves it with most, in flight and put off together;
    of several such forwards the last."""
    enough = _enough(schedule, pp, micro_batches)
    return _peak(schedule, rank, pp, vpp, enough)


def _enough(schedule: str, pp: int, micro_batches: int) -> int:
    """As many micro-batches as show the same peak, so that long programs need not be written."""
    if schedule in ("gpipe", "looped_bfs"):
        return micro_batches
    if schedule.startswith("interleaved"):
        size = torch_round(pp, micro_batches)
        return int(size * min(micro_batches // size, ENOUGH_ROUNDS))
    return min(micro_batches, ENOUGH_ROUNDS * pp)


@lru_cache(maxsize=4096)
def _peak(schedule: str, rank: int, pp: int, vpp: int, micro_batches: int) -> Flight:
    order = rank_order(schedule, rank, pp, vpp, micro_batches)
    held = accumulate(map(_change, order))
    forwards = [
        (now, at) for at, (now, one) in enumerate(zip(held, order, strict=True)) if one.kind == "F"
    ]
    _, last_peak = max(forwards)
    return _at(order[: last_peak + 1], stages_of_rank(schedule, rank, pp, vpp))


def _change(action: Action) -> int:
    """Micro-batches held more after an action; a split backward lets go at its second half."""
    return {"F": 1, "B": -1, "I": 0, "W": -1}[action.kind]


def _at(done: list[Action], stages: tuple[int, ...]) -> Flight:
    counts = Counter((one.kind, one.stage) for one in done)

    def count(stage: int, *kinds: Kind) -> int:
        return sum(counts[kind, stage] for kind in kinds)

    return Flight(
        per_stage=tuple(count(stage, "F") - count(stage, "B", "I") for stage in stages),
        put_off=tuple(count(stage, "I") - count(stage, "W") for stage in stages),
        accumulating=any(kind in "BW" for kind, _ in counts),
    )
