"""A long step from short ones: what one more layer or micro-batch adds is added as often as needed.

Nothing is taken on trust. Two short scripts that differ by one layer must be equal but for one
piece of the longer one, and that piece is what is repeated; two micro-batches in the same position
must be equal before one stands for others. ``NotAlikeError`` says that they are not, and then the
step is run whole.

A step is a sequence of passes, the forwards and backwards of micro-batches, with gaps between them:
the start of the step, which meets parameters and optimizer state; sends and receives; and the end,
where gradients are measured, clipped and applied, those of all layers at once.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from meshfit.dryrun.script import Action, Block, Line, Message, Operation, with_layer

K = TypeVar("K")


class NotAlikeError(Exception):
    """Short runs do not tell what a long one does."""


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One forward (F) or backward (B) of a micro-batch in a schedule."""

    direction: str
    stage: int
    micro_batch: int


@dataclass(frozen=True, kw_only=True)
class Longer:
    """The script of a run with one layer, or one micro-batch, more; and how many more are wanted."""

    actions: Sequence[Action]
    added: int


def repeated(
    short: Sequence[Action],
    *,
    layers: Longer,
    micro_batches: Longer,
    slots: Sequence[Slot] | None = None,
) -> tuple[Action, ...]:
    """The step of ``short`` with more layers in every stage, in the longer schedule ``slots``.

    A pass of the schedule is that of ``short`` in the same position (see ``_positions``). Without
    ``slots`` the schedule is that of ``short``.

    Raises:
        NotAlikeError: a position is new, or two micro-batches in it were not alike; or the runs
            differ by more than what is repeated.
    """
    if _slots(short) != _slots(layers.actions):
        raise NotAlikeError("one more layer changes the order of forwards and backwards")
    passes = [
        _deeper(a, b, layers.added)
        for a, b in zip(_passes(short), _passes(layers.actions), strict=True)
    ]
    ours, deeper, wider = (_gaps(one) for one in (short, layers.actions, micro_batches.actions))
    first = _grown_gap(ours[0], (deeper[0], layers.added), (wider[0], micro_batches.added))
    last = _grown_gap(ours[-1], (deeper[-1], layers.added), (wider[-1], micro_batches.added))
    between = [
        _grown_gap(a, (b, layers.added)) for a, b in zip(ours[1:-1], deeper[1:-1], strict=True)
    ]
    gaps = [first, *between, last]
    if slots is None:
        return (gaps[0], *(one for pair in zip(passes, gaps[1:], strict=True) for one in pair))
    return _in_order(slots, _slots(short), passes, gaps)


def _in_order(
    slots: Sequence[Slot], run: Sequence[Slot], passes: Sequence[Action], gaps: Sequence[Action]
) -> tuple[Action, ...]:
    """The passes and gaps of ``run`` as often, and in the order, that ``slots`` has them."""
    known = _examples(_positions(run), passes)
    known_gaps = _examples(list(pairwise(_kinds(run))), gaps[1:-1])
    positions, neighbours = _positions(slots), list(pairwise(_kinds(slots)))
    missing = {*positions} - {*known} or {*neighbours} - {*known_gaps}
    if missing:
        raise NotAlikeError(f"positions of the schedule that were not run: {missing}")
    between = [known_gaps[pair] for pair in neighbours]
    actions: list[Action] = [gaps[0]]
    for slot, position, gap in zip(slots, positions, [*between, gaps[-1]], strict=True):
        actions += [replace(known[position], micro_batch=slot.micro_batch), gap]
    return tuple(actions)


def _passes(actions: Sequence[Action]) -> list[Action]:
    return [action for action in actions if action.direction]


def _slots(actions: Sequence[Action]) -> list[Slot]:
    return [
        Slot(direction=one.direction, stage=one.stage, micro_batch=one.micro_batch)
        for one in _passes(actions)
        if one.stage is not None and one.micro_batch is not None
    ]


def _gaps(actions: Sequence[Action]) -> list[Action]:
    """What lies before the first pass, between each two, and after the last; maybe nothing."""
    gaps: list[Action] = []
    lines: list[Line] = []
    for action in actions:
        if action.direction:
            gaps.append(_gap(lines))
            lines = []
        else:
            lines += action.lines
    return [*gaps, _gap(lines)]


def _gap(lines: Sequence[Line]) -> Action:
    return Action(direction="", stage=None, micro_batch=None, lines=tuple(lines))


# One more layer in a pass


def _deeper(short: Action, longer: Action, added: int) -> Action:
    """A forward or backward with ``added`` more layers."""
    goes_up = short.direction == "F"
    start, length = _inserted(_operations(short), _operations(longer))
    lines = list(_shifted(short.lines[:start], 0 if goes_up else added))
    for copy in range(added):
        # The piece is of the longer run, whose backward begins one layer further up.
        lines += _shifted(
            longer.lines[start : start + length], copy if goes_up else added - 1 - copy
        )
    lines += _shifted(short.lines[start:], added if goes_up else 0)
    return replace(short, lines=tuple(lines))


def _operations(action: Action) -> list[Operation]:
    return [line.operation for line in action.lines]


def _shifted(lines: Iterable[Line], added: int) -> Iterable[Line]:
    return (with_layer(line, added) for line in lines)


def _inserted(short: Sequence[object], longer: Sequence[object]) -> tuple[int, int]:
    """Where ``longer`` has a piece more than ``short``, and how long it is.

    Raises:
        NotAlikeError: that piece is not all the difference.
    """
    length = len(longer) - len(short)
    start = next(
        (i for i, (a, b) in enumerate(zip(short, longer, strict=False)) if a != b),
        min(len(short), len(longer)),
    )
    if length < 0 or list(short[start:]) != list(longer[start + length :]):
        raise NotAlikeError("a longer run is not a shorter one with one piece more")
    return start, length


# More layers or micro-batches in a gap


def _grown_gap(short: Action, *longer: tuple[Action, int]) -> Action:
    """A gap grown by several runs, each with one unit more of something, as many times as asked.

    An operation may take more blocks for a unit, or larger ones; or there are more operations.
    """
    operations = _operations(short)
    pieces: dict[int, list[Line]] = {}
    for gap, added in longer:
        if not added:
            continue
        start, length = _inserted(
            [_what(one) for one in short.lines], [_what(one) for one in gap.lines]
        )
        kept = [*gap.lines[:start], *gap.lines[start + length :]]
        operations = [
            _grown(operation, a.operation, b.operation, added)
            for operation, a, b in zip(operations, short.lines, kept, strict=True)
        ]
        pieces.setdefault(start, []).extend([*gap.lines[start : start + length]] * added)
    lines: list[Line] = []
    for index, (line, operation) in enumerate(zip(short.lines, operations, strict=True)):
        lines += [*pieces.get(index, ()), replace(line, operation=operation)]
    return replace(short, lines=(*lines, *pieces.get(len(short.lines), ())))


def _what(line: Line) -> tuple[str, str, str]:
    return line.operation.name, line.operation.phase, line.operation.module


def _grown(base: Operation, short: Operation, longer: Operation, added: int) -> Operation:
    """``base``, which may have grown otherwise, plus ``added`` times what ``longer`` has more than
    ``short``."""
    if short == longer:
        return base
    return replace(
        base,
        flops=base.flops + added * (longer.flops - short.flops),
        freed=_grown_blocks(base.freed, short.freed, longer.freed, added),
        born=_grown_blocks(base.born, short.born, longer.born, added),
        messages=_grown_messages(base.messages, short.messages, longer.messages, added),
    )


def _grown_blocks(
    base: Sequence[Block], short: Sequence[Block], longer: Sequence[Block], added: int
) -> tuple[Block, ...]:
    """A block that only the short run has is one that has grown in the longer; the rest is new."""
    blocks = Counter(base)
    new = Counter(longer) - Counter(short)
    for size, category in sorted((Counter(short) - Counter(longer)).elements()):
        larger = sorted(block for block in new if block[1] == category and block[0] > size)
        if not larger or not blocks[size, category]:
            raise NotAlikeError("a longer run holds less")
        new -= Counter(larger[:1])
        blocks[size, category] -= 1
        blocks[size + added * (larger[0][0] - size), category] += 1
    for block, count in new.items():
        blocks[block] += added * count
    return tuple(sorted(blocks.elements()))


def _grown_messages(
    base: Sequence[Message], short: Sequence[Message], longer: Sequence[Message], added: int
) -> tuple[Message, ...]:
    if not len(base) == len(short) == len(longer):
        raise NotAlikeError("a longer run has other collectives in one operation")
    return tuple(
        replace(own, size_bytes=own.size_bytes + added * (b.size_bytes - a.size_bytes))
        for own, a, b in zip(base, short, longer, strict=True)
    )


# Micro-batches

Kind = tuple[str, int, bool, bool] | None
"""Direction and stage of a pass, whether it is the first and the last of these; None: no pass."""


def _kinds(slots: Sequence[Slot]) -> list[Kind]:
    counts = Counter((slot.direction, slot.stage) for slot in slots)
    seen: Counter[tuple[str, int]] = Counter()
    kinds: list[Kind] = []
    for slot in slots:
        key = slot.direction, slot.stage
        seen[key] += 1
        kinds.append((*key, seen[key] == 1, seen[key] == counts[key]))
    return kinds


def _positions(slots: Sequence[Slot]) -> list[tuple[Kind, Kind]]:
    """What each pass can depend on: its kind, and that of the pass before it."""
    return list(pairwise([None, *_kinds(slots)]))


def _examples(positions: Sequence[K], actions: Sequence[Action]) -> dict[K, Action]:
    """Position -> the action there, which all actions in that position must be like."""
    examples: dict[K, Action] = {}
    for position, action in zip(positions, actions, strict=True):
        example = examples.setdefault(position, action)
        if example.lines != action.lines:
            raise NotAlikeError(f"not alike, though both are at {position}")
    return examples
