"""ZeRO stage 1 beside tensor and pipeline parallelism (1910.02054, section 5.1).

PyTorch's ``ZeroRedundancyOptimizer`` makes parameters views of one buffer a rank, which DTensors cannot
be. Here whole parameters are dealt out, and what a rank has updated is sent as it lies.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from meshfit.measure.timeline.axes import along
from meshfit.run.gradients import local_tensor

MakeOptimizer = Callable[[list[dict[str, Any]]], Optimizer]
"""Parameter groups -> the optimizer that steps them."""


class ShardedOptimizer(Optimizer):
    """Each rank of ``group`` steps its share of the parameters, then all send each other what is new.

    All ranks have the same gradients. ``optim`` steps this rank's share and has the state of no other.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], make: MakeOptimizer, group: dist.ProcessGroup
    ) -> None:
        super().__init__(parameters, {})
        self._group = group
        self._shares = shares(parameters, dist.get_world_size(group))
        self.optim = make([{"params": self._shares[dist.get_rank(group)]}])

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        self.optim.step()
        for work in list(self._send()):
            work.wait()

    def _send(self) -> Iterator[dist.Work]:
        for rank, share in enumerate(self._shares):
            owner = dist.get_global_rank(self._group, rank)
            with along("dp_shard"):
                for parameter in share:
                    yield dist.broadcast(
                        local_tensor(parameter), owner, group=self._group, async_op=True
                    )


def shares(parameters: Sequence[nn.Parameter], ranks: int) -> list[list[nn.Parameter]]:
    """The parameters dealt out to ``ranks``, the largest first, each to who has least."""
    dealt: list[list[nn.Parameter]] = [[] for _ in range(ranks)]
    sizes = [0] * ranks
    for parameter in sorted(parameters, key=lambda one: -local_tensor(one).numel()):
        least = sizes.index(min(sizes))
        dealt[least].append(parameter)
        sizes[least] += local_tensor(parameter).numel()
    return dealt
