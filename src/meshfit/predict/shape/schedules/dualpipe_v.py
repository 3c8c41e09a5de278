"""DualPipeV: DualPipe (2412.19437, section 3.2.1) folded into a V of two stages a rank."""

from collections import deque

from meshfit.predict.shape.schedules.action import Action, Kind


def dualpipe_v(rank: int, pp: int, micro_batches: int) -> list[Action]:
    """The order of one rank, as torch.distributed.pipelining has it; at least ``2 * pp``
    micro-batches.

    Where DualPipe runs a forward and a backward together, torch's runtime runs the one after the
    other; so they stand one after the other here.
    """
    plan = _Plan(first=rank, last=2 * pp - 1 - rank)
    behind = pp - 1 - rank
    plan.forward(0, times=2 * behind)
    for _ in range(rank + 1):
        plan.forward(0)
        plan.forward(1)
    for _ in range(behind):
        plan.input(1)
        plan.weight()
        plan.forward(1)
    for _ in range(micro_batches - 2 * pp + rank + 1):
        plan.forward(0)
        plan.backward(1)
        plan.forward(1)
        plan.backward(0)
    for _ in range(behind):
        plan.backward(1)
        plan.forward(1)
        plan.backward(0)
    _drain(plan, rank, behind)
    return plan.actions


def _drain(plan: "_Plan", rank: int, behind: int) -> None:
    """The last backwards; from the middle on, gradients of weights are put off to fill gaps."""
    for number in range(2 * rank + 2):
        virtual_stage = 1 - number % 2
        if number <= rank:
            plan.backward(virtual_stage)
        else:
            plan.input(virtual_stage)
    for _ in range(behind):
        plan.weight()
        plan.input(0)
    for _ in range(rank + 1):
        plan.weight()


class _Plan:
    """Actions so far; gradients of weights that were put off wait in order."""

    def __init__(self, *, first: int, last: int) -> None:
        self.actions: list[Action] = []
        self._stages = (first, last)
        self._next: dict[tuple[Kind, int], int] = {}
        self._waiting: deque[tuple[int, int]] = deque()

    def forward(self, virtual_stage: int, *, times: int = 1) -> None:
        for _ in range(times):
            self._add("F", virtual_stage, counted_as="F")

    def backward(self, virtual_stage: int) -> None:
        self._add("B", virtual_stage, counted_as="I")

    def input(self, virtual_stage: int) -> None:
        number = self._add("I", virtual_stage, counted_as="I")
        self._waiting.append((self._stages[virtual_stage], number))

    def weight(self) -> None:
        if self._waiting:
            self.actions.append(Action("W", *self._waiting.popleft()))

    def _add(self, kind: Kind, virtual_stage: int, *, counted_as: Kind) -> int:
        stage = self._stages[virtual_stage]
        number = self._next.get((counted_as, stage), 0)
        self._next[counted_as, stage] = number + 1
        self.actions.append(Action(kind, stage, number))
        return number
