"""Which states are sharded over which ranks."""

import numpy as np

from meshfit.mesh.rule import Fact, rule


@rule(
    subject="zero_stage",
    message="{engine} does not run zero_stage={zero_stage}",
    lists_all=True,
)
def zero_stage_known(zero_stage: Fact, zero_stages: Fact) -> Fact:
    """An engine runs the ZeRO stages it has."""
    return np.isin(zero_stage, zero_stages)


@rule(
    subject="zero_stage",
    message=(
        "zero_stage={zero_stage} does not go with dp_shard={dp_shard}: stages 1 to 3 shard over "
        "dp_shard ranks, and stage 0 shards nothing (its ranks are dp_replicate)"
    ),
    lists_all=True,
)
def zero_stage_matches_dp_shard(zero_stage: Fact, dp_shard: Fact) -> Fact:
    """One way to write each layout: dp_shard is above 1 exactly when something is sharded."""
    return (zero_stage > 0) == (dp_shard > 1)


@rule(
    subject="zero_stage",
    message=(
        "zero_stage=1 is not planned with dp_replicate={dp_replicate} in {engine}; let all of these ranks "
        "be dp_shard"
    ),
    lists_all=True,
)
def zero1_without_replicas(zero_stage: Fact, dp_replicate: Fact) -> Fact:
    """Gradients are whole on all data-parallel ranks anyway: replicas beside shards save nothing."""
    return (zero_stage != 1) | (dp_replicate == 1)


@rule(
    subject="zero_stage",
    message="optimizer={optimizer} does not run with zero_stage={zero_stage} in {engine}",
    lists_all=True,
)
def muon_without_zero1(optimizer: Fact, zero_stage: Fact) -> Fact:
    """A rank's share has one optimizer for all of its parameters; Muon has matrices and others."""
    return (optimizer != "muon") | (zero_stage != 1)


@rule(
    subject="zero_stage",
    message="zero_stage=0 shards nothing, but dp_shard={dp_shard} asks for shards",
    lists_all=True,
)
def shards_need_a_stage(zero_stage: Fact, dp_shard: Fact) -> Fact:
    """Ranks that hold the same states are dp_replicate."""
    return (dp_shard == 1) | (zero_stage > 0)


@rule(
    subject="data_parallel_size",
    message=(
        "ZeRO shards over the data-parallel group (dp x cp): with one rank in it, zero_stage="
        "{zero_stage} saves nothing"
    ),
)
def zero_shards_something(zero_stage: Fact, data_parallel_size: Fact, cp: Fact = 1) -> Fact:
    """Stages 1 to 3 divide states over data-parallel ranks, never over tp or pp."""
    return (zero_stage == 0) | (data_parallel_size * cp > 1)


@rule(
    subject="zero_stage",
    message="{engine} runs a pipeline (pp={pp}) with zero_stage 0 or 1, not {zero_stage}",
    lists_all=True,
)
def pipeline_needs_whole_gradients(zero_stage: Fact, pp: Fact) -> Fact:
    """Sharded gradients would be reduced after every micro-batch of every stage."""
    return (pp == 1) | (zero_stage <= 1)


@rule(
    subject="zero_stage",
    message="{engine} combines tensor parallelism (tp={tp}) with zero_stage 0 to 2, not {zero_stage}",
    lists_all=True,
)
def tensor_parallel_needs_whole_parameters(zero_stage: Fact, tp: Fact) -> Fact:
    """Its gathers know nothing of weights that are already cut."""
    return (tp == 1) | (zero_stage <= 2)


@rule(
    subject="dp_replicate",
    message=(
        "{engine} shards over all data-parallel ranks: dp_replicate={dp_replicate} beside "
        "dp_shard={dp_shard} is not possible"
    ),
    lists_all=True,
)
def hybrid_sharding_unknown(dp_replicate: Fact, dp_shard: Fact) -> Fact:
    """The engine has one data-parallel group."""
    return (dp_replicate == 1) | (dp_shard == 1)


@rule(
    subject="dp_shard",
    message=(
        "{engine} refuses dp_replicate={dp_replicate} with tp={tp} or cp={cp} unless dp_shard is "
        "above 1"
    ),
)
def replicas_with_model_parallel_need_shards(
    dp_replicate: Fact, dp_shard: Fact, tp: Fact = 1, cp: Fact = 1
) -> Fact:
    """Plain replicas go through DDP, which does not know sharded weights or sequences."""
    return (dp_replicate == 1) | (dp_shard > 1) | ((tp == 1) & (cp == 1))


@rule(
    subject="dp_shard",
    message="zero_stage={zero_stage} with dp_shard={dp_shard} and cp={cp} has nothing to shard over",
)
def stage_needs_shards(zero_stage: Fact, dp_shard: Fact, cp: Fact = 1) -> Fact:
    """The engine refuses a sharding plugin whose group has one rank."""
    return (zero_stage == 0) | (dp_shard * cp > 1)


@rule(
    subject="dp_shard",
    message="{engine} serves whole weights: dp_shard={dp_shard} is not possible; replicas are dp_replicate",
    lists_all=True,
)
def serving_shards_no_states(dp_shard: Fact) -> Fact:
    """Data parallel is replicas that take different requests."""
    return dp_shard == 1
