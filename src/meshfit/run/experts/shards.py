"""Experts divided over their own mesh of the same ranks: expert data parallel x expert parallel.

The mesh folds dp_shard x cp x tp with ep as the inner part (``mesh.groups``). A parameter of the
experts is a DTensor over ``ep``. Ranks that hold the same experts (``edp``, and replicas) divide its
states by FSDP2 as the dense part's are divided (it also casts where each holds other ones); where the
dense part is not divided, gradients are summed once a step.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard, distribute_tensor

from meshfit.measure.timeline.axes import along
from meshfit.mesh.spec import AXES, LayoutSpec
from meshfit.run.experts.layer import Experts
from meshfit.run.mesh import RankMesh

_EXPERT_AXES = ("pp", "dp_replicate", "edp", "ep")
_EXPERTS_DIM, _OUTPUT_DIM = 0, 1


@dataclass(frozen=True)
class ExpertMesh:
    """The ranks of a layout as its experts see them."""

    layout: LayoutSpec
    devices: DeviceMesh

    @property
    def ep(self) -> DeviceMesh:
        return self.devices["ep"]

    @property
    def divides_states(self) -> bool:
        """Whether FSDP2 holds what ep leaves of the experts, be it all of one rank's own."""
        return self.layout.zero_stage > 1

    @property
    def states(self) -> DeviceMesh:
        """The mesh that ``fully_shard`` takes, where it divides states."""
        return self.devices[self._present("dp_replicate", "edp")]

    @cached_property
    def alike(self) -> DeviceMesh | None:
        """Ranks that hold the same experts, as one axis; None where no two do."""
        names = self._present("dp_replicate", "edp")
        alike = self.devices[names]
        if alike.size() == 1:
            return None
        return alike if alike.ndim == 1 else alike._flatten("expert_replicas")

    def groups(self) -> Iterator[tuple[str, ProcessGroup]]:
        """``ep`` and ``edp`` where they have ranks, and this rank's group along each."""
        for name in self._present("ep", "edp"):
            yield name, self.devices[name].get_group()
        if self.alike is not None:
            yield "edp", self.alike.get_group()

    def _present(self, *names: str) -> tuple[str, ...]:
        return tuple(name for name in names if name in self.devices.mesh_dim_names)


def expert_data_degree(layout: LayoutSpec) -> int:
    """Ranks of one replica that hold the same experts."""
    return layout.dp_shard * layout.cp * layout.tp // layout.ep


def build_expert_mesh(mesh: RankMesh) -> ExpertMesh | None:
    """The experts' own mesh; None without expert parallelism."""
    layout = mesh.layout
    if layout.ep == 1 or mesh.devices is None:
        return None
    ranks = mesh.devices.mesh.reshape([getattr(layout, axis) for axis in AXES])
    shape = (layout.pp, layout.dp_replicate, expert_data_degree(layout), layout.ep)
    kept = {axis: n for axis, n in zip(_EXPERT_AXES, shape, strict=True) if n > 1 or axis == "edp"}
    devices = DeviceMesh(
        mesh.devices.device_type,
        ranks.reshape(list(kept.values())),
        mesh_dim_names=tuple(kept),
    )
    return ExpertMesh(layout, devices)


def distribute(experts: Experts, mesh: ExpertMesh) -> None:
    """Leave each rank of ``ep`` its own experts, in order."""
    for name, parameter in list(experts.named_parameters(recurse=False)):
        shard = distribute_tensor(parameter, mesh.ep, [Shard(_EXPERTS_DIM)], src_data_rank=None)
        experts.register_parameter(name, nn.Parameter(shard))


def divide_states(experts: Experts, mesh: ExpertMesh, **options: object) -> None:
    """FSDP2 over ranks with the same experts, one unit a layer; whole experts where it comes out even."""
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    degree = expert_data_degree(mesh.layout)
    local = experts.down_proj.to_local().shape[_EXPERTS_DIM]
    dim = _EXPERTS_DIM if local % degree == 0 else _OUTPUT_DIM
    fully_shard(experts, mesh=mesh.states, shard_placement_fn=lambda _: Shard(dim), **options)


class ExpertGradients:
    """Makes gradients of experts means over the step, as those of the dense part are.

    A rank's experts see the tokens of all ranks of its expert group, so that an average over ranks
    with the same experts (FSDP2's) is one over too few: the sum over these must be divided by all
    ranks that see other tokens.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], mesh: ExpertMesh) -> None:
        self._parameters = list(parameters)
        self._group = None
        if mesh.divides_states:
            averaged_over = math.prod(mesh.states.shape)
        else:
            averaged_over = 1
            self._group = mesh.alike and mesh.alike.get_group()
        self._factor = averaged_over / mesh.layout.gradient_ranks

    @torch.no_grad()
    def finish(self) -> None:
        """Sum over ranks with the same experts where nobody did yet, and scale."""
        gradients = [parameter.grad.to_local() for parameter in self._parameters]
        if self._group is not None:
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            with along("edp"):
                dist.all_reduce(flat, group=self._group)
            sums = flat.split([gradient.numel() for gradient in gradients])
            for gradient, total in zip(gradients, sums, strict=True):
                gradient.copy_(total.view_as(gradient))
        torch._foreach_mul_(gradients, self._factor)
