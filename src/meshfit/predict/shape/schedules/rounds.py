"""How interleaved schedules take micro-batches round the virtual stages of a rank."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """A round runs so many micro-batches through every virtual stage before the next round.

    Attributes:
        size: micro-batches of a round; the last one may have fewer (Megatron-Core's
            ``microbatch_group_size_per_vp_stage``).
    """

    pp: int
    vpp: int
    micro_batches: int
    size: int

    @property
    def passes(self) -> int:
        """Forwards of one rank in a step: one a virtual stage and micro-batch."""
        return self.vpp * self.micro_batches

    def forwards(self, rank: int) -> Iterator[tuple[int, int]]:
        """(stage, micro-batch) in the order in which a rank runs their forwards."""
        return self._order(rank, range(self.vpp))

    def backwards(self, rank: int) -> Iterator[tuple[int, int]]:
        """The same for backwards: the last virtual stage comes first."""
        return self._order(rank, range(self.vpp - 1, -1, -1))

    def warm_up(self, rank: int, hops: int) -> int:
        """Forwards before the first backward: all but one virtual stage's share of a round, and
        ``hops`` more for each rank that lies behind."""
        return min((self.vpp - 1) * self.size + hops * (self.pp - 1 - rank), self.passes)

    def _order(self, rank: int, virtual_stages: range) -> Iterator[tuple[int, int]]:
        for start in range(0, self.micro_batches, self.size):
            numbers = range(start, min(start + self.size, self.micro_batches))
            for virtual_stage in virtual_stages:
                for number in numbers:
                    yield rank + self.pp * virtual_stage, number


def torch_round(pp: int, micro_batches: Any) -> Any:
    """Micro-batches of a round in torch.distributed.pipelining, which makes all rounds equal; of a
    plain int, or of every integer of an array."""
    return micro_batches // np.maximum(1, micro_batches // pp)
