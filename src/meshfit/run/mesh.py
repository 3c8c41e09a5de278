"""The live device mesh of a layout, and where this rank stands in it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.distributed as dist

from meshfit.errors import InputError
from meshfit.mesh.spec import AXES, LayoutSpec

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh


@dataclass(frozen=True, kw_only=True)
class RankMesh:
    """A layout's ``DeviceMesh`` as this rank sees it. Axes of degree 1 are left out of it.

    ``devices`` is None when every degree is 1: one process, nothing to communicate with.
    """

    layout: LayoutSpec
    devices: "DeviceMesh | None"

    def axis(self, *names: str) -> "DeviceMesh | None":
        """The submesh of those of ``names`` whose degree is above 1; None when there are none."""
        present = tuple(name for name in names if getattr(self.layout, name) > 1)
        return self.devices[present] if present else None

    def index(self, name: str) -> int:
        """This rank's position along one axis."""
        if getattr(self.layout, name) == 1:
            return 0
        return self.devices.get_local_rank(name)

    def sum_over_ranks(self, tensor: "Tensor") -> "Tensor":
        """``tensor``, replaced in place by its sum over every rank of the world."""
        if self.devices is not None:
            dist.all_reduce(tensor)
        return tensor

    @property
    def data_parallel_index(self) -> int:
        """Which of the ``data_parallel_size`` chunks of the global batch this rank takes."""
        return self.index("dp_replicate") * self.layout.dp_shard + self.index("dp_shard")


def build_mesh(layout: LayoutSpec, device_type: str) -> RankMesh:
    """The mesh of ``layout`` over the running world, axes in ``AXES`` order, ``tp`` innermost.

    Raises:
        InputError: the layout needs another number of ranks than torchrun started.
    """
    world_size = dist.get_world_size() if dist.is_initialized() else 1
    if layout.world_size != world_size:
        raise InputError(
            f"layout {layout.label} needs {layout.world_size} ranks, but {world_size} were started"
        )
    axes = {name: getattr(layout, name) for name in AXES if getattr(layout, name) > 1}
    if not axes:
        return RankMesh(layout=layout, devices=None)
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415

    devices = init_device_mesh(device_type, tuple(axes.values()), mesh_dim_names=tuple(axes))
    return RankMesh(layout=layout, devices=devices)
