"""How many ranks a layout has, and how its degrees divide the world."""

from meshfit.mesh.rule import Fact, rule


@rule(
    subject="dp_shard",
    message=(
        "dp_replicate*dp_shard*cp*tp*pp = {dp_replicate}*{dp_shard}*{cp}*{tp}*{pp} is not the "
        "{world} accelerators of the cluster"
    ),
    lists_all=True,
)
def world_size(
    *, world: Fact, dp_replicate: Fact, dp_shard: Fact, cp: Fact, tp: Fact, pp: Fact
) -> Fact:
    """Every rank has one place in the mesh; ep is folded into dp_shard x cp x tp and adds none."""
    return dp_replicate * dp_shard * cp * tp * pp == world


@rule(
    subject="world",
    message="{world} accelerators cannot be divided by tp*cp*pp = {tp}*{cp}*{pp}",
)
def world_divisible_by_model_parallel(world: Fact, tp: Fact, cp: Fact = 1, pp: Fact = 1) -> Fact:
    """What is left over is the data-parallel size."""
    return world % (tp * cp * pp) == 0


@rule(
    subject="world",
    message="{world} accelerators cannot be divided by etp*ep*pp = {etp}*{ep}*{pp}",
    module="experts",
)
def world_divisible_by_expert_parallel(world: Fact, ep: Fact, etp: Fact = 1, pp: Fact = 1) -> Fact:
    """The experts' own decomposition of the same ranks: what is left over is expert data parallel."""
    return world % (etp * ep * pp) == 0
