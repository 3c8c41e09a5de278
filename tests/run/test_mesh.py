"""The live mesh has the groups that plans are made with. Ranks of a fake world, in one process."""

import pytest

from meshfit.mesh.groups import coordinates, groups
from meshfit.mesh.orders import orders
from meshfit.mesh.spec import AXES, LayoutSpec, make_layout

LAYOUTS = [
    {"tp": 2, "dp_replicate": 3},
    {"pp": 2, "dp_replicate": 2, "dp_shard": 2, "tp": 2},
    {"dp_shard": 2, "cp": 2, "tp": 3},
]


def live_groups(layout: LayoutSpec, rank: int, order: tuple[str, ...]) -> dict[str, list[int]]:
    """Ranks of each axis's group as this rank's process groups hold them."""
    import torch.distributed as dist

    from meshfit.dryrun.world import fake_world
    from meshfit.run.mesh import build_mesh

    with fake_world(rank, layout.world_size):
        mesh = build_mesh(layout, "cpu", order)
        place = {axis: mesh.index(axis) for axis in AXES}
        assert place == coordinates(layout, rank, order)
        return {
            axis: dist.get_process_group_ranks(submesh.get_group())
            for axis in AXES
            if (submesh := mesh.axis(axis)) is not None
        }


@pytest.mark.parametrize("keys", LAYOUTS, ids=lambda keys: make_layout(keys).label)
def test_the_mesh_of_every_rank_order_has_the_groups_of_the_plan(keys):
    layout = make_layout(keys)
    for order in orders(layout):
        for rank in (0, layout.world_size // 2, layout.world_size - 1):
            for axis, ranks in live_groups(layout, rank, order).items():
                (planned,) = [g for g in groups(layout, axis, order).tolist() if rank in g]
                assert ranks == planned


def test_tensor_parallel_ranks_are_neighbours_unless_asked_otherwise():
    layout = make_layout({"tp": 2, "dp_replicate": 2})
    assert live_groups(layout, 0, AXES) == {"dp_replicate": [0, 2], "tp": [0, 1]}
    outermost = ("tp", "pp", "cp", "dp_shard", "dp_replicate")
    assert live_groups(layout, 0, outermost) == {"dp_replicate": [0, 1], "tp": [0, 2]}
