"""Groups that leave a host or a link domain: slow, or not possible."""

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


@rule(
    subject="tp",
    message=(
        "a replica of tp*pp*cp = {tp}*{pp}*{cp} ranks, one of {data_parallel_size}, is neither an "
        "equal part of a host's {gpus_per_host} accelerators nor whole hosts"
    ),
    module="placement",
    lists_all=True,
)
def replicas_fill_hosts(
    tp: Fact, data_parallel_size: Fact, gpus_per_host: Fact, pp: Fact = 1, cp: Fact = 1
) -> Fact:
    """Hosts are shared out to replicas in equal groups, so that none straddles a part of a host."""
    ranks = tp * pp * cp
    fills = (gpus_per_host % ranks == 0) | (ranks % gpus_per_host == 0)
    return (data_parallel_size == 1) | fills
