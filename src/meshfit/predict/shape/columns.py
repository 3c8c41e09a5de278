"""The columns that every formula of tier 1 starts from, derived once from the layouts."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import CP_METHODS, OFFLOAD, Candidates
from meshfit.profile import EngineProfile
from meshfit.workload.training import TrainingSpec

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class StepColumns:
    """N layouts as the formulas see them; every attribute is an array of shape [N].

    Attributes:
        tokens: tokens of one micro-batch on one rank.
        micro_batches: micro-batches of one step on one data-parallel rank.
        head_ranks, key_ranks: context-parallel ranks among which heads are traded for tokens, and
            among which keys and values are exchanged; their product is ``cp``.
        sequence_split: by how much sequence parallelism divides what lies between tp blocks.
        state_shard: ranks over which ZeRO divides states (dp_shard and cp together).
        replicas: ranks over which gradients of one shard are summed beyond ``state_shard``.
        through_fsdp: whether FSDP2's hooks gather parameters and reduce gradients.
        casts: whether parameters are cast once to the compute type; else matmuls cast (autocast).
        shards_optimizer, shards_gradients, shards_parameters: whether ZeRO divides them (from stage
            1, 2 and 3 on; FSDP2 has no stage 2 without sharded parameters).
        frees_after_forward: whether gathered parameters are dropped between forward and backward.
        keeps_gradients: whether FSDP2's hooks keep whole gradients until the last micro-batch.
        policy: index into ``candidates.RECOMPUTE``; ``recompute_layers`` its number of layers.
        offloads_states, offloads_activations: whether they lie on the host when nothing uses them.
        expert_split: ranks over which ep and etp divide the experts of a layer (tp where the layout
            has no expert parallelism).
        splits_experts: whether there is expert parallelism, so that experts have groups of their own.
        expert_shard: ranks over which ZeRO divides the states of one rank's experts.
        expert_replicas: ranks over which gradients of these shards are summed beyond them.
        dispatch_split: by how much expert parallelism over tp's ranks divides the copies of tokens
            that one rank's experts receive.
        expert_load: copies that the fullest rank's experts receive, over an even share.
    """

    tp: IntArray
    cp: IntArray
    pp: IntArray
    tokens: FloatArray
    micro_batches: IntArray
    head_ranks: IntArray
    key_ranks: IntArray
    sequence_split: IntArray
    state_shard: IntArray
    replicas: IntArray
    through_fsdp: BoolArray
    casts: BoolArray
    shards_optimizer: BoolArray
    shards_gradients: BoolArray
    shards_parameters: BoolArray
    frees_after_forward: BoolArray
    keeps_gradients: BoolArray
    policy: IntArray
    recompute_layers: IntArray
    offloads_states: BoolArray
    offloads_activations: BoolArray
    expert_split: IntArray
    splits_experts: BoolArray
    expert_shard: IntArray
    expert_replicas: IntArray
    dispatch_split: FloatArray
    expert_load: FloatArray

    def __len__(self) -> int:
        return len(self.tp)


def step_columns(
    candidates: Candidates, training: TrainingSpec, profile: EngineProfile
) -> StepColumns:
    """Derive them. A layout whose batch does not fill one micro-batch counts as having one."""
    c = candidates
    data_parallel = c.dp_replicate * c.dp_shard
    micro_batches = np.maximum(
        1, training.global_batch_size // (data_parallel * c.micro_batch_size)
    )
    state_shard = np.where(c.zero_stage > 0, c.dp_shard * c.cp, 1)
    shards_gradients = c.zero_stage >= 2
    shards_parameters = shards_gradients if profile.stage_2_shards_parameters else c.zero_stage >= 3
    combined = ((c.tp > 1) | (c.pp > 1)) & profile.replicates_through_fsdp
    through_fsdp = (data_parallel * c.cp > 1) & (shards_parameters | combined)
    kept_by_pipeline = (c.pp > 1) & profile.pipeline_keeps_unsharded
    etp = np.where(c.ep > 1, c.etp, c.tp)
    expert_split = c.ep * etp
    reduces_once = ~shards_gradients | (not profile.reduces_each_micro_batch)
    expert_shard, expert_replicas = _expert_groups(c, state_shard, profile)
    head_ranks = _head_ranks(c, profile)
    return StepColumns(
        tp=c.tp,
        cp=c.cp,
        pp=c.pp,
        tokens=np.ceil(c.micro_batch_size * training.sequence_length / c.cp),
        micro_batches=micro_batches,
        head_ranks=head_ranks,
        key_ranks=c.cp // head_ranks,
        sequence_split=np.where(c.sp > 0, c.tp, 1),
        state_shard=state_shard,
        replicas=data_parallel * c.cp // state_shard,
        through_fsdp=through_fsdp,
        casts=through_fsdp | (profile.memory_model != "pytorch"),
        shards_optimizer=c.zero_stage >= 1,
        shards_gradients=shards_gradients,
        shards_parameters=shards_parameters,
        frees_after_forward=c.zero_stage >= 3,
        keeps_gradients=through_fsdp & (kept_by_pipeline | ((micro_batches > 1) & reduces_once)),
        policy=c.recompute,
        recompute_layers=c.recompute_layers,
        offloads_states=c.offload_to == OFFLOAD.index("cpu"),
        offloads_activations=c.offload_to == OFFLOAD.index("activations"),
        expert_split=expert_split,
        splits_experts=c.ep > 1,
        expert_shard=expert_shard,
        expert_replicas=expert_replicas,
        dispatch_split=c.tp / etp,
        expert_load=np.where(c.ep > 1, training.runtime.expert_imbalance, 1.0),
    )


def context_methods(candidates: Candidates, profile: EngineProfile) -> IntArray:
    """Index into ``CP_METHODS`` of each layout's exchange: the engine's own where it does not say, a
    ring where neither does."""
    default = profile.cp_method if profile.cp_method in CP_METHODS else "ring"
    asked = candidates.cp_method
    return np.where(asked == CP_METHODS.index(None), CP_METHODS.index(default), asked)


def _head_ranks(c: Candidates, profile: EngineProfile) -> IntArray:
    methods = context_methods(c, profile)
    inner = np.where(methods == CP_METHODS.index("hierarchical"), c.cp_inner, 1)
    return np.where(methods == CP_METHODS.index("all_to_all"), c.cp, inner)


def _expert_groups(
    c: Candidates, state_shard: IntArray, profile: EngineProfile
) -> tuple[IntArray, IntArray]:
    """Ranks over which states of experts are divided, and ranks that hold the same shard.

    Without expert parallelism they are divided as all other states are. With it, ranks of the axes
    that it folds (``EngineProfile.expert_fold``) beyond ep x etp hold the same experts, and so do
    replicas that it does not fold.
    """
    folded = np.prod([getattr(c, axis) for axis in profile.expert_fold], axis=0)
    alike = np.maximum(1, folded // (c.ep * c.etp))
    outside = 1 if "dp_replicate" in profile.expert_fold else c.dp_replicate
    all_alike = np.where(c.ep > 1, alike * outside, c.dp_replicate * c.dp_shard * c.cp)
    shards = np.where(c.ep > 1, alike, state_shard)
    shard = np.where(c.zero_stage > 0, shards, 1)
    return shard, all_alike // shard


def strides(candidates: Candidates, profile: EngineProfile) -> Mapping[str, IntArray]:
    """How many ranks apart neighbours on each axis are, in the engine's rank order."""
    apart = {}
    stride = np.ones(len(candidates), dtype=np.int64)
    for axis in reversed(profile.rank_order):
        apart[axis] = stride
        stride = stride * getattr(candidates, axis)
    return apart
