"""Groups that leave a host or a link domain: legal, and slow."""

from meshfit.mesh.rule import Fact, rule


@rule(
    subject="tp",
    message=(
        "tensor-parallel groups of {tp} leave their domain of {gpus_per_domain} accelerators: the "
        "collectives inside every layer cross the network"
    ),
    module="placement",
    lists_all=True,
)
def tensor_parallel_inside_domain(tp: Fact, gpus_per_domain: Fact) -> Fact:
    """A domain is a host, or the accelerators of one link where that joins several hosts."""
    return (tp == 1) | (gpus_per_domain % tp == 0)


@rule(
    subject="dp_shard",
    message=(
        "shard groups of dp_shard={dp_shard} (beside tp*cp = {tp}*{cp}) leave their domain of "
        "{gpus_per_domain} accelerators: what is sharded is exchanged over the network; dp_replicate "
        "over domains would keep them inside"
    ),
    module="placement",
    lists_all=True,
)
def shards_inside_domain(dp_shard: Fact, gpus_per_domain: Fact, tp: Fact = 1, cp: Fact = 1) -> Fact:
    """Hybrid sharding is an axis of its own: shards inside, replicas across."""
    return (dp_shard == 1) | (gpus_per_domain % (dp_shard * tp * cp) == 0)
