"""A layout, and the job around it, cut until they fit fewer nodes.

What one rank does to one layer stays: tensor, context and expert parallelism, the micro-batch, what is
recomputed and how states are sharded. Pipeline and data parallelism are cut, and with them the depth, so that a
rank holds about as many states; then the batch, so that a rank has as many micro-batches, up to a few
for each stage.
"""

from dataclasses import dataclass, replace

from meshfit.errors import InputError
from meshfit.mesh.generate import divisors
from meshfit.mesh.spec import LayoutSpec

MICRO_BATCHES_PER_STAGE = 4
LAYERS_PER_STAGE = 2


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """What is run in place of ``of``: ``layers`` deep, ``global_batch_size`` sequences a step."""

    of: LayoutSpec
    layout: LayoutSpec
    layers: int
    global_batch_size: int


def shrunk(
    layout: LayoutSpec, ranks: int, *, num_hidden_layers: int, global_batch_size: int
) -> Proxy:
    """The proxy of ``layout`` on ``ranks`` ranks.

    Raises:
        InputError: no divisors of pp and of data parallelism fill them beside tp and cp.
    """
    pp, shards, replicas = _degrees(layout, ranks)
    interleaves = pp > 1 and layout.vpp > 1
    small = replace(
        layout,
        pp=pp,
        dp_shard=shards,
        dp_replicate=replicas,
        vpp=layout.vpp if interleaves else 1,
        schedule=layout.schedule if interleaves or layout.vpp == 1 else "1f1b",
        stage_layers=None,
        zero_stage=layout.zero_stage if shards > 1 else 0,
    )
    micro_batches = layout.num_micro_batches(global_batch_size)
    kept = min(micro_batches, MICRO_BATCHES_PER_STAGE * pp)
    return Proxy(
        of=layout,
        layout=small,
        layers=_layers(layout, small, num_hidden_layers),
        global_batch_size=kept * small.data_parallel_size * small.micro_batch_size,
    )


def _degrees(layout: LayoutSpec, ranks: int) -> tuple[int, int, int]:
    """pp, dp_shard and dp_replicate that fill ``ranks``: data parallelism of two at least where there is
    some, then as much of the pipeline as can be, then of the shards."""
    inner = layout.tp * layout.cp
    found = [
        (pp, shards, ranks // (inner * pp * shards))
        for pp in divisors(layout.pp)
        for shards in divisors(layout.dp_shard)
        if ranks % (inner * pp * shards) == 0
        and layout.dp_replicate % (ranks // (inner * pp * shards)) == 0
    ]
    if not found:
        raise InputError(
            f"no proxy of {layout.label} fills {ranks} ranks: tp and cp take {inner}, and beside them "
            f"only divisors of pp={layout.pp}, dp_shard={layout.dp_shard} and "
            f"dp_replicate={layout.dp_replicate} do; choose another --proxy"
        )
    parallel = min(2, layout.data_parallel_size)
    return max(found, key=lambda d: (min(parallel, d[1] * d[2]), d[0], d[1]))


def _layers(layout: LayoutSpec, small: LayoutSpec, num_hidden_layers: int) -> int:
    """As many as leave a rank the states it had, some on every stage."""
    sharded = small.dp_shard / layout.dp_shard if layout.zero_stage else 1.0
    share = small.pp / layout.pp * sharded
    least = LAYERS_PER_STAGE * small.num_stages
    return min(num_hidden_layers, max(least, round(num_hidden_layers * share)))
