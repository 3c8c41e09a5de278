"""Curves of every shape of group, and every link alone."""

import time
from collections.abc import Iterator
from math import prod

import torch
import torch.distributed as dist

from meshfit.measure.probe.clock import FEWEST, repetitions, seconds_each, slowest
from meshfit.measure.probe.collectives import collective
from meshfit.measure.probe.shapes import Members, groups, pairs, shapes
from meshfit.record.probe import (
    PROBED_COLLECTIVES,
    CollectiveCurve,
    CurvePoint,
    GroupRate,
    LinkRate,
    ProbeRequest,
    curve_point,
)

LINK_BYTES = 2**22
"""Sent over each link alone: enough to be held against its rate."""
MEMORY_COPIES = 3
"""Buffers that the largest collective holds at once, with what the library adds."""


FORETOLD = 20
"""The next size is left out where so many times the last one's seconds go beyond the budget."""


class Fabric:
    """Measures between the ranks of a world; every rank makes the same calls in the same order."""

    def __init__(self, request: ProbeRequest, device: torch.device, free_bytes: int) -> None:
        self._request = request
        self._device = device
        self._largest = min(request.largest_bytes, free_bytes // MEMORY_COPIES)
        self._ranks = {
            here: groups(request.level_sizes, here) for here in shapes(request.level_sizes)
        }
        self._groups = {
            here: [dist.new_group(ranks) for ranks in all_ranks]
            for here, all_ranks in self._ranks.items()
        }
        several = sum(len(all_ranks) > 1 for all_ranks in self._ranks.values())
        curves = (len(self._ranks) + several) * len(PROBED_COLLECTIVES)
        self._curve_budget_s = request.budget_s / max(1, curves)
        self.group_rates: list[GroupRate] = []

    def curves(self) -> Iterator[CollectiveCurve]:
        """Every collective over every shape: one group alone, and where there are several all of
        them at once."""
        for members, all_ranks in self._ranks.items():
            for used in sorted({1, len(all_ranks)}):
                for name in PROBED_COLLECTIVES:
                    yield self._curve(name, members, used)

    def links(self) -> list[LinkRate]:
        """Every pair of ``shapes.pairs`` alone."""
        found = []
        for first, second, level in pairs(self._request.level_sizes):
            seconds = slowest(self._send_s(first, second), None, self._device)
            found.append(
                LinkRate(
                    first_rank=first,
                    second_rank=second,
                    level=self._request.level_names[level],
                    bytes_per_s=LINK_BYTES / seconds,
                )
            )
        return found

    def _curve(self, name: str, members: Members, used: int) -> CollectiveCurve:
        """Sizes upward until the time for one curve is spent."""
        points: list[CurvePoint] = []
        until_s = time.monotonic() + self._curve_budget_s
        size = self._request.smallest_bytes
        while size <= self._largest:
            own_s = self._own_s(name, size, members, used)
            seconds = slowest(own_s, None, self._device)
            if seconds > 0:
                points.append(curve_point(name, prod(members), size, seconds))
            over_s = slowest(time.monotonic() - until_s, None, self._device)
            if over_s + FORETOLD * seconds > 0:
                break
            size *= self._request.step
        if name == "all_reduce" and used > 1:
            self._compare(members, own_s)
        return CollectiveCurve(collective=name, members=members, groups=used, points=tuple(points))

    def _own_s(self, name: str, size: int, members: Members, used: int) -> float:
        """Seconds of one collective on this rank; 0 where it takes no part."""
        rank = dist.get_rank()
        numbered = zip(self._ranks[members][:used], self._groups[members], strict=False)
        group = next((group for ranks, group in numbered if rank in ranks), None)
        run = None if group is None else collective(name, size, group, self._device)
        dist.barrier()
        if run is None:
            return 0.0
        run()
        first_s = slowest(seconds_each(run, self._device, 1), group, self._device)
        return seconds_each(run, self._device, repetitions(first_s))

    def _compare(self, members: Members, own_s: float) -> None:
        """What each of the groups took for the largest size, all of them at once."""
        every: list[float] = [0.0] * dist.get_world_size()
        dist.all_gather_object(every, own_s)
        self.group_rates += [
            GroupRate(ranks=tuple(ranks), members=members, seconds=max(every[r] for r in ranks))
            for ranks in self._ranks[members]
        ]

    def _send_s(self, first: int, second: int) -> float:
        """Seconds of one message between two ranks, the fastest of some; 0 on the others."""
        rank = dist.get_rank()
        buffer = torch.ones(LINK_BYTES // 4, device=self._device)
        dist.barrier()
        if rank not in (first, second):
            return 0.0

        def exchange() -> None:
            if rank == first:
                dist.send(buffer, second)
            else:
                dist.recv(buffer, first)

        return min(seconds_each(exchange, self._device, 1) for _ in range(1 + FEWEST))
