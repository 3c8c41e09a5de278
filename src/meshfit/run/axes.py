"""The mesh axes of the process groups that PyTorch's own wrappers call with.

Our own calls name their axis themselves (``measure.timeline.axes.along``). What is left are those of
FSDP2 and DDP over states, of DTensor over tp, and of the pipeline.
"""

import torch.distributed as dist

from meshfit.measure.timeline.axes import WORLD
from meshfit.mesh.spec import AXES
from meshfit.run.experts.model import ExpertModel
from meshfit.run.mesh import RankMesh


def axes_of_groups(mesh: RankMesh, experts: ExpertModel | None) -> dict[str, str]:
    """Name of a group -> axis. Ranks that divide or copy states count context parallel ones in."""
    if mesh.devices is None:
        return {}
    summed = "dp_shard" if mesh.layout.zero_stage == 1 else "dp_replicate"
    submeshes = [(axis, mesh.axis(axis)) for axis in AXES]
    submeshes += [("dp_shard", mesh.shards), (summed, mesh.replicas)]
    axes = {dist.group.WORLD.group_name: WORLD}
    axes |= {
        submesh.get_group().group_name: axis for axis, submesh in submeshes if submesh is not None
    }
    own = {group.group_name: axis for axis, group in experts.groups()} if experts else {}
    return own | axes
