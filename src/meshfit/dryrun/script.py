"""A step as a script: operations without identities, which can be compared, cut and repeated.

A ``Trace`` names blocks; a script says what each operation does to memory (bytes that come, bytes
that go) and where in the model it runs, counted from the stage's first layer. Two layers, or two
micro-batches, that are alike then have equal scripts.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshfit.breakdown import MEMORY_CATEGORIES
from meshfit.dryrun.trace import Collective, Moment, Trace

BACKWARD = ("backward", "loss_backward", "recompute")

_LAYER_IN_NAME = re.compile(r"(?<=\.)\d+(?=\.|$)")


Block = tuple[int, str]
"""Bytes and category."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """A collective of one operation."""

    kind: str
    axis: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation. Equal ones do the same, whichever layer and micro-batch they belong to.

    ``freed`` and ``born`` hold blocks, sorted; ``module`` has ``#`` for
    the number of its layer.
    """

    name: str
    phase: str
    module: str
    flops: int
    freed: tuple[Block, ...]
    born: tuple[Block, ...]
    messages: tuple[Message, ...]


@dataclass(frozen=True, kw_only=True)
class Line:
    """An operation and the layer it runs in, counted from the stage's first; None outside."""

    operation: Operation
    layer: int | None


@dataclass(frozen=True, kw_only=True)
class Action:
    """A run of operations of one direction of one micro-batch of one stage, or between two such.

    ``direction`` is F or B; empty between them, where ``stage`` and ``micro_batch`` are None.
    """

    direction: str
    stage: int | None
    micro_batch: int | None
    lines: tuple[Line, ...]


def script_of(trace: Trace, first_layers: Sequence[int]) -> tuple[Action, ...]:
    """The actions of a trace; ``first_layers`` holds the number of each stage's first layer."""
    actions: list[Action] = []
    lines: list[Line] = []
    current: tuple[str, int | None, int | None] | None = None
    for moment, operation in zip(trace.moments, _operations(trace), strict=True):
        key = _key(moment)
        if key != current and current is not None:
            actions.append(_action(current, lines))
            lines = []
        current = key
        layer = moment.layer
        if layer is not None and moment.stage is not None:
            layer -= first_layers[moment.stage]
        lines.append(Line(operation=operation, layer=layer))
    if current is not None:
        actions.append(_action(current, lines))
    return tuple(actions)


def _key(moment: Moment) -> tuple[str, int | None, int | None]:
    if moment.micro_batch is None:
        return "", None, None
    direction = "B" if moment.phase in BACKWARD else "F"
    return direction, moment.stage, moment.micro_batch


def _action(key: tuple[str, int | None, int | None], lines: list[Line]) -> Action:
    direction, stage, micro_batch = key
    return Action(direction=direction, stage=stage, micro_batch=micro_batch, lines=tuple(lines))


def _operations(trace: Trace) -> Iterable[Operation]:
    changes: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for moment, block, added in zip(
        trace.change_moment.tolist(),
        trace.change_block.tolist(),
        trace.change_bytes.tolist(),
        strict=True,
    ):
        changes[moment].append((added, MEMORY_CATEGORIES[trace.categories[block]]))
    messages: dict[int, list[Message]] = defaultdict(list)
    for one in trace.collectives:
        messages[one.moment].append(
            Message(kind=one.kind, axis=one.axis, size_bytes=one.size_bytes)
        )
    for index, moment in enumerate(trace.moments):
        here = changes[index]
        yield Operation(
            name=moment.operation,
            phase=moment.phase,
            module=_LAYER_IN_NAME.sub("#", moment.module),
            flops=moment.flops,
            freed=tuple(sorted((-size, category) for size, category in here if size < 0)),
            born=tuple(sorted((size, category) for size, category in here if size > 0)),
            messages=tuple(messages[index]),
        )


class _Blocks:
    """Gives blocks of a script identities again.

    What is freed is a live block of that size and category: the newest one of the same stage and
    micro-batch, else the oldest of all.
    """

    def __init__(self) -> None:
        self.categories: list[int] = []
        self._live: dict[tuple[int, str], dict[object, deque[int]]] = defaultdict(
            lambda: defaultdict(deque)
        )

    def born(self, size_bytes: int, category: str, owner: object) -> int:
        block = len(self.categories)
        self.categories.append(MEMORY_CATEGORIES.index(category))
        self._live[size_bytes, category][owner].append(block)
        return block

    def freed(self, size_bytes: int, category: str, owner: object) -> int:
        """
        Raises:
            ValueError: no such block is live.
        """
        owners = self._live[size_bytes, category]
        if owners.get(owner):
            block = owners[owner].pop()
        else:
            candidates = [queue for queue in owners.values() if queue]
            if not candidates:
                raise ValueError(f"no live block of {size_bytes} bytes of {category}")
            block = min(candidates, key=lambda queue: queue[0]).popleft()
        return block


def trace_of(actions: Iterable[Action], first_layers: Sequence[int]) -> Trace:
    """A trace with the memory, messages and FLOPs of a script, the inverse of ``script_of``.

    Raises:
        ValueError: the script frees what it never made.
    """
    moments: list[Moment] = []
    collectives: list[Collective] = []
    changes: list[tuple[int, int, int]] = []
    blocks = _Blocks()
    for action in actions:
        owner = (action.stage, action.micro_batch)
        for line in action.lines:
            index = len(moments)
            moments.append(_moment(action, line, first_layers))
            for size, category in line.operation.freed:
                changes.append((index, blocks.freed(size, category, owner), -size))
            for size, category in line.operation.born:
                changes.append((index, blocks.born(size, category, owner), size))
            collectives += [
                Collective(
                    moment=index,
                    kind=one.kind,
                    axis=one.axis,
                    size_bytes=one.size_bytes,
                    phase=moments[-1].phase,
                    module=moments[-1].module,
                )
                for one in line.operation.messages
            ]
    columns = np.array(changes, dtype=np.int64).reshape(-1, 3)
    return Trace(
        moments=tuple(moments),
        change_moment=columns[:, 0],
        change_block=columns[:, 1],
        change_bytes=columns[:, 2],
        categories=np.array(blocks.categories, dtype=np.int64),
        collectives=tuple(collectives),
    )


def _moment(action: Action, line: Line, first_layers: Sequence[int]) -> Moment:
    operation, layer = line.operation, line.layer
    if layer is not None and action.stage is not None:
        layer += first_layers[action.stage]
    return Moment(
        operation=operation.name,
        phase=operation.phase,
        module=operation.module.replace("#", str(layer)),
        layer=layer,
        stage=action.stage,
        micro_batch=action.micro_batch,
        flops=operation.flops,
    )


def with_layer(line: Line, added: int) -> Line:
    """The same line in a later layer."""
    return line if line.layer is None or not added else replace(line, layer=line.layer + added)
