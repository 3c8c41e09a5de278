"""Things that are known to go wrong, done on purpose: the runner's ways around them rest on them.

Called last in the parity session, because a world may be of no use afterwards.
"""

import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from meshfit.mesh.spec import LayoutSpec
from meshfit.run.gradients import GlobalNorm
from meshfit.run.mesh import RankMesh


def spring_traps(folder: Path) -> None:
    """Leave what happened in ``traps.json``."""
    found = {
        "clip_mixture": _error_of(_clip_mixture),
        "norm_of_mixture": _norm_of_mixture(),
        "premul_sum": _error_of(_premul_sum),
        "coalescing": _error_of(_coalescing),
    }
    if dist.get_rank() == 0:
        (folder / "traps.json").write_text(json.dumps(found))


def _error_of(function) -> str:
    try:
        function()
    except (RuntimeError, ValueError) as error:
        return str(error)
    return "no error"


def _mixture() -> list[nn.Parameter]:
    """A parameter sharded over the world and a plain one, each with a gradient of norm 4."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    sharded = nn.Parameter(distribute_tensor(torch.zeros(16), mesh, [Shard(0)]))
    sharded.grad = distribute_tensor(torch.ones(16), mesh, [Shard(0)])
    plain = nn.Parameter(torch.zeros(16))
    plain.grad = torch.ones(16)
    return [sharded, plain]


def _clip_mixture() -> None:
    torch.nn.utils.clip_grad_norm_(_mixture(), 1.0)


def _norm_of_mixture() -> float:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    layout = LayoutSpec(tp=dist.get_world_size())
    return GlobalNorm(_mixture(), RankMesh(layout=layout, devices=mesh)).measure().item()


def _premul_sum() -> None:
    dist.all_reduce(torch.ones(1), op=dist._make_nccl_premul_sum(0.5))


def _coalescing() -> None:
    tensor = torch.ones(1)
    with dist._coalescing_manager(device=tensor.device):
        dist.all_reduce(tensor)
