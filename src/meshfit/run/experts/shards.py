"""Experts divided over their own mesh of the same ranks: expert data x expert x expert tensor parallel.

The mesh folds dp_shard x cp x tp with ep x etp as the inner part (``mesh.groups``). A parameter of the
experts is a DTensor over ``ep``, which divides experts, and ``etp``, which cuts the width of each.
Ranks that hold the same (``edp``, and replicas) divide its states by FSDP2 as the dense part's are
divided (it also casts where each holds other ones); where the dense part is not divided, gradients
are summed once a step.

Without expert parallelism there is no such mesh: experts are cut over ``tp``, and what is left of
them is divided as the dense part of their layer is.
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

from meshfit.errors import InputError
from meshfit.measure.timeline.axes import along
from meshfit.mesh.spec import AXES, LayoutSpec
from meshfit.run.experts.layer import Experts
from meshfit.run.mesh import RankMesh
from meshfit.run.model.packed import Packing

_EXPERT_AXES = ("pp", "dp_replicate", "edp", "ep", "etp")
_EXPERTS_DIM, _OUTPUT_DIM = 0, 1
_WIDTH_DIMS = {"gate_up_proj": 1, "down_proj": 2}
"""Along which an expert's matrices are cut: gate and up by columns, packed in one, down by rows."""


@dataclass(frozen=True)
class ExpertMesh:
    """The ranks of a layout as its experts see them."""

    layout: LayoutSpec
    devices: DeviceMesh

    @property
    def ep(self) -> DeviceMesh:
        return self.devices["ep"]

    @property
    def etp(self) -> DeviceMesh | None:
        """Ranks that have the width of the same experts between them; None where they are whole."""
        return self.devices["etp"] if self.layout.etp > 1 else None

    @property
    def holders(self) -> DeviceMesh:
        """Ranks that have all experts between them."""
        return self.devices[self._present("ep", "etp")]

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
        """The experts' axes that have ranks, and this rank's group along each."""
        for name in self._present("ep", "etp", "edp"):
            yield name, self.devices[name].get_group()
        if self.alike is not None:
            yield "edp", self.alike.get_group()

    def _present(self, *names: str) -> tuple[str, ...]:
        return tuple(name for name in names if name in self.devices.mesh_dim_names)


def expert_data_degree(layout: LayoutSpec) -> int:
    """Ranks of one replica that hold the same experts, or the same part of them."""
    return layout.dp_shard * layout.cp * layout.tp // (layout.ep * layout.etp)


def build_expert_mesh(mesh: RankMesh) -> ExpertMesh | None:
    """The experts' own mesh; None without expert parallelism."""
    layout = mesh.layout
    if layout.ep == 1 or mesh.devices is None:
        return None
    ranks = mesh.devices.mesh.reshape([getattr(layout, axis) for axis in AXES])
    shape = (layout.pp, layout.dp_replicate, expert_data_degree(layout), layout.ep, layout.etp)
    kept = {axis: n for axis, n in zip(_EXPERT_AXES, shape, strict=True) if n > 1 or axis == "edp"}
    devices = DeviceMesh(
        mesh.devices.device_type,
        ranks.reshape(list(kept.values())),
        mesh_dim_names=tuple(kept),
    )
    return ExpertMesh(layout, devices)


def width_mesh(mesh: RankMesh, own: ExpertMesh | None) -> DeviceMesh | None:
    """Ranks that have the width of the same experts between them, as one axis; None where experts
    are whole."""
    return mesh.axis("tp") if own is None else own.etp


def distribute(experts: Experts, own: ExpertMesh | None, width: DeviceMesh | None) -> None:
    """Leave each rank its own experts, in order, and its part of their width.

    Raises:
        InputError: the width does not come out even.
    """
    mesh = width if own is None else own.holders
    if mesh is None:
        return
    for name, parameter in list(experts.named_parameters(recurse=False)):
        placements = [] if own is None else [Shard(_EXPERTS_DIM)]
        if width is not None:
            _check_width(experts, width)
            placements.append(Shard(_WIDTH_DIMS[name]))
        shard = distribute_tensor(parameter, mesh, placements, src_data_rank=None)
        experts.register_parameter(name, nn.Parameter(shard))


def packing_of(experts: Experts, ranks: int) -> Packing:
    """How gate and up projection lie in one parameter, of each of which ``ranks`` have a part."""
    width = experts.down_proj.shape[_WIDTH_DIMS["down_proj"]]
    return Packing(dim=_WIDTH_DIMS["gate_up_proj"], sizes=(width, width), shards=ranks)


def _check_width(experts: Experts, mesh: DeviceMesh) -> None:
    width = experts.down_proj.shape[_WIDTH_DIMS["down_proj"]]
    if width % mesh.size():
        raise InputError(
            f"experts of width {width} cannot be cut over {mesh.size()} ranks: each has as much of "
            f"it; use a divisor of {width}, or ep with etp=1, which keeps experts whole"
        )


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
