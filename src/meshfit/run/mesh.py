"""The live device mesh of a layout, and where this rank stands in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from meshfit.errors import InputError
from meshfit.measure.timeline.axes import WORLD, along
from meshfit.mesh.groups import ranks_by_place
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
        return self.devices[present] if present and self.devices is not None else None

    def group(self, name: str) -> "dist.ProcessGroup":
        """This rank's group along one axis whose degree is above 1."""
        axis = self.axis(name)
        assert axis is not None, f"{name} is 1: there is no group along it"
        return axis.get_group()

    def index(self, name: str) -> int:
        """This rank's position along one axis."""
        if self.devices is None or getattr(self.layout, name) == 1:
            return 0
        return self.devices.get_local_rank(name)

    @property
    def shards(self) -> "DeviceMesh | None":
        """The one-axis mesh of ranks over which ZeRO divides parameters: dp_shard, and cp with it."""
        return self._joined("dp_shard", "cp") if self._divides_parameters else None

    @property
    def optimizer_shards(self) -> "DeviceMesh | None":
        """The same of ranks that divide nothing but the optimizer's state (ZeRO stage 1)."""
        return self._joined("dp_shard", "cp") if self.layout.zero_stage == 1 else None

    @property
    def replicas(self) -> "DeviceMesh | None":
        """The one-axis mesh of ranks that hold the same parameters and add up their gradients."""
        if self._divides_parameters:
            return self.axis("dp_replicate")
        return self._joined("dp_replicate", "dp_shard", "cp")

    @property
    def _divides_parameters(self) -> bool:
        return self.layout.zero_stage > 1

    @property
    def states(self) -> "DeviceMesh | None":
        """Replicas and shards as the mesh of a hybrid layout: [replicas, shards], or the one there is."""
        replicas, shards = self.replicas, self.shards
        if replicas is None or shards is None:
            return replicas or shards
        return type(shards)._concatenate([replicas, shards])

    def _joined(self, *names: str) -> "DeviceMesh | None":
        axes = self.axis(*names)
        return axes if axes is None or axes.ndim == 1 else axes._flatten()

    def context_groups(
        self, key_ranks: int, head_ranks: int
    ) -> "tuple[dist.ProcessGroup | None, dist.ProcessGroup | None]":
        """The cp axis as key_ranks x head_ranks, neighbours exchanging heads: this rank's group along
        each; None where that is one rank."""
        if key_ranks == 1 or head_ranks == 1:
            group = self.group("cp")
            return (None, group) if key_ranks == 1 else (group, None)
        axis = self.axis("cp")
        assert axis is not None, "each of the two is above 1, and so is cp"
        two = axis._unflatten(0, (key_ranks, head_ranks), ("cp_keys", "cp_heads"))
        return two["cp_keys"].get_group(), two["cp_heads"].get_group()

    def sum_over_ranks(self, tensor: "Tensor") -> "Tensor":
        """``tensor``, replaced in place by its sum over every rank of the world."""
        if self.devices is not None:
            with along(WORLD):
                dist.all_reduce(tensor)
        return tensor

    def sum_over_tokens(self, tensor: "Tensor") -> "Tensor":
        """``sum_over_ranks`` of what routers count, token by token: of tensor-parallel ranks that route
        the same tokens (no sequence parallelism) the first one counts."""
        if self.index("tp") > 0 and not self.layout.sp:
            tensor.zero_()
        return self.sum_over_ranks(tensor)

    @property
    def data_parallel_index(self) -> int:
        """Which of the ``data_parallel_size`` chunks of the global batch this rank takes."""
        return self.index("dp_replicate") * self.layout.dp_shard + self.index("dp_shard")


def build_mesh(layout: LayoutSpec, device_type: str, rank_order: Sequence[str] = AXES) -> RankMesh:
    """The mesh of ``layout`` over the running world.

    ``rank_order`` lays the ranks: neighbours on its last axis are neighbours in rank. The mesh's own
    dimensions are in ``AXES`` order whatever it is, as those who shard over several of them expect.

    Raises:
        InputError: the layout needs another number of ranks than torchrun started.
    """
    world_size = dist.get_world_size() if dist.is_initialized() else 1
    if layout.world_size != world_size:
        raise InputError(
            f"layout {layout.label} needs {layout.world_size} ranks, but {world_size} were started"
        )
    axes = tuple(name for name in AXES if getattr(layout, name) > 1)
    if not axes:
        return RankMesh(layout=layout, devices=None)
    from torch.distributed.device_mesh import DeviceMesh  # noqa: PLC0415

    ranks = torch.from_numpy(ranks_by_place(layout, axes, rank_order))
    return RankMesh(layout=layout, devices=DeviceMesh(device_type, ranks, mesh_dim_names=axes))
