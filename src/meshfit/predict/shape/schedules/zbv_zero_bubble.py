"""ZB-V: two stages a rank in a V, backwards cut in two (2401.10241, section 6)."""

from collections.abc import Iterator

from meshfit.predict.shape.schedules.action import Action, Kind


def zbv_zero_bubble(rank: int, pp: int, micro_batches: int) -> list[Action]:
    """The order of one rank, as torch.distributed.pipelining has it.

    It is drawn for at least ``2 * pp - 1`` micro-batches; with fewer, the others are left out.
    """
    drawn = max(2 * pp - 1, micro_batches)
    actions = _Drawing(first=rank, last=2 * pp - 1 - rank).actions(rank, pp, drawn)
    return [one for one in actions if one.micro_batch < micro_batches]


class _Drawing:
    """Hands out the next micro-batch of each kind of action on each of the two stages."""

    def __init__(self, *, first: int, last: int) -> None:
        self._first, self._last = first, last
        self._next: dict[tuple[Kind, int], int] = {}

    def actions(self, rank: int, pp: int, micro_batches: int) -> Iterator[Action]:
        first, last = self._first, self._last
        yield from self._times(2 * (pp - rank) - 1, ("F", first))
        yield from self._times(rank, ("F", last), ("F", first))
        yield from self._times(pp - rank, ("F", last), ("I", last), ("W", last))
        while self._count("F", last) < self._count("F", first) or self._left(micro_batches):
            if self._left(micro_batches):
                yield self._take("F", first)
            yield from self._times(1, ("I", first), ("W", first))
            yield from self._times(1, ("F", last), ("I", last), ("W", last))
        yield from self._times(rank, ("I", first), ("I", last))
        yield from self._times(pp - rank, ("I", first), ("W", first))
        for stage in (last, first):
            behind = self._count("I", stage) - self._count("W", stage)
            yield from self._times(behind, ("W", stage))

    def _left(self, micro_batches: int) -> bool:
        return self._count("F", self._first) < micro_batches

    def _count(self, kind: Kind, stage: int) -> int:
        return self._next.get((kind, stage), 0)

    def _take(self, kind: Kind, stage: int) -> Action:
        number = self._count(kind, stage)
        self._next[kind, stage] = number + 1
        return Action(kind, stage, number)

    def _times(self, times: int, *pattern: tuple[Kind, int]) -> Iterator[Action]:
        for _ in range(times):
            for kind, stage in pattern:
                yield self._take(kind, stage)
