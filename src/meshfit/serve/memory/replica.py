"""Memory of one replica: its worst rank by category, the pool of its KV cache, and whether it fits."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from meshfit.cluster.topology import AcceleratorSpec
from meshfit.profile import EngineProfile
from meshfit.serve.memory.kv_cache import KvCache, kv_cache
from meshfit.serve.memory.shards import StageShards, stages
from meshfit.serve.setting.budget import MOST_OF_DEVICE, ServingBudget
from meshfit.serve.setting.layout import ServingLayout
from meshfit.workload.blocks.feed_forward import MlpSpec, MoeSpec
from meshfit.workload.model import ModelSpec

Verdict = Literal["fits", "does_not_fit"]

CONTEXT_BYTES = 2**29
"""A CUDA context with kernels, as in ``predict.memory.device``."""

COMMUNICATOR_BYTES = {1: 0, 2: 342 * 2**20}
LARGE_COMMUNICATOR_BYTES = 392 * 2**20
"""NCCL and custom all-reduce buffers of 2, and of 4 or 8 ranks (aiconfigurator-core 0.12, memory.py)."""

LOGIT_BYTES = 2 + 4 + 4
"""Of one entry of the logits while tokens are sampled: 16 bits, fp32 and a probability."""


@dataclass(frozen=True, kw_only=True)
class ServingMemory:
    """Bytes of one rank by category; ``kv_cache`` is the pool, ``margin`` what is left of the share
    that the engine may take (negative: what is lacking)."""

    weights: int
    kv_cache: int
    workspace: int
    communication: int
    unattributed: int

    @property
    def total(self) -> int:
        return (
            self.weights + self.kv_cache + self.workspace + self.communication + self.unattributed
        )

    def as_json(self) -> dict[str, int]:
        return {
            "total": self.total,
            "weights": self.weights,
            "kv_cache": self.kv_cache,
            "workspace": self.workspace,
            "communication": self.communication,
            "unattributed": self.unattributed,
        }


@dataclass(frozen=True, kw_only=True)
class StageMemory:
    """A rank of one pipeline stage: what it holds, and its pool under the engine's budget."""

    memory: ServingMemory
    cache: KvCache


@dataclass(frozen=True, kw_only=True)
class ReplicaMemory:
    """Memory of one replica under one engine's budget.

    Attributes:
        stages: one rank of each pipeline stage.
        capacity_bytes: of the device.
        request_tokens: length of the requests that are counted.
        max_sequences: that the engine runs at once on one attention group.
        attention_groups: that share out the requests.
    """

    stages: tuple[StageMemory, ...]
    capacity_bytes: int
    request_tokens: int
    max_sequences: int
    attention_groups: int

    @cached_property
    def worst(self) -> StageMemory:
        """The stage whose pool holds fewest requests."""
        return min(self.stages, key=self._share_of_request)

    def _share_of_request(self, one: StageMemory) -> float:
        taken = max(one.cache.request_bytes(self.request_tokens), 1.0)
        return one.memory.kv_cache / taken

    @property
    def memory(self) -> ServingMemory:
        """Of the worst rank."""
        return self.worst.memory

    @property
    def margin_bytes(self) -> int:
        """What the pool has beyond one request of full length; negative: what is lacking for it."""
        return int(
            min(
                one.memory.kv_cache - one.cache.request_bytes(self.request_tokens)
                for one in self.stages
            )
        )

    @property
    def kv_tokens(self) -> int:
        """Tokens that the pools of the replica hold (vLLM and SGLang size all ranks by the least)."""
        least = min(
            one.cache.pool_tokens(one.memory.kv_cache, self.request_tokens) for one in self.stages
        )
        return least * self.attention_groups

    @property
    def concurrency(self) -> int:
        """Requests of ``request_tokens`` that the replica computes at once."""
        least = min(
            one.cache.requests(one.memory.kv_cache, self.request_tokens) for one in self.stages
        )
        return min(least, self.max_sequences) * self.attention_groups

    @property
    def verdict(self) -> Verdict:
        """``fits``: a request of full length has its pages, within 95 % of the device."""
        return "fits" if self.margin_bytes >= 0 else "does_not_fit"


def replica_memory(
    model: ModelSpec,
    layout: ServingLayout,
    profile: EngineProfile,
    accelerator: AcceleratorSpec,
    *,
    request_tokens: int,
    budget: ServingBudget,
    held: tuple[StageShards, ...] | None = None,
) -> ReplicaMemory:
    """Memory of one replica of ``layout`` on ``accelerator``.

    Args:
        request_tokens: prompt and output of the longest request that must run.
        held: what ranks hold, where it was worked out before (``ReplicaClock.held``).
    """
    held = held or stages(model, layout, profile)
    return ReplicaMemory(
        stages=tuple(
            _stage(model, stage, layout, accelerator, budget, is_last=stage is held[-1])
            for stage in held
        ),
        capacity_bytes=accelerator.memory_bytes,
        request_tokens=request_tokens,
        max_sequences=budget.max_sequences,
        attention_groups=layout.attention_dp,
    )


def _stage(
    model: ModelSpec,
    stage: StageShards,
    layout: ServingLayout,
    accelerator: AcceleratorSpec,
    budget: ServingBudget,
    *,
    is_last: bool,
) -> StageMemory:
    weights = stage.weight_bytes
    workspace = budget.graph_bytes + activation_bytes(
        model,
        stage,
        layout,
        tokens=budget.step_tokens,
        sequences=budget.max_sequences if is_last else 0,
    )
    communication = _communicator_bytes(layout)
    others = workspace + communication + CONTEXT_BYTES
    return StageMemory(
        memory=ServingMemory(
            weights=weights,
            kv_cache=int(pool_bytes(budget, accelerator.memory_bytes, weights, others)),
            workspace=workspace,
            communication=communication,
            unattributed=CONTEXT_BYTES,
        ),
        cache=kv_cache(stage.layers, tp=layout.tp, budget=budget),
    )


def pool_bytes(budget: ServingBudget, total: int, weights: int, others: int) -> float:
    """What the engine's policy leaves to the KV cache of a device of ``total`` bytes; negative: what
    is lacking.

    Never more than what weights and ``others`` leave of 95 % of the device.
    """
    fraction = budget.memory_fraction
    match budget.memory_policy:
        case "total":
            pool = total * fraction - weights - others
        case "static":
            pool = total * fraction - weights
        case "free":
            free = total - weights - others
            pool = free * fraction if free > 0 else free
    return min(pool, total * MOST_OF_DEVICE - weights - others)


def activation_bytes(
    model: ModelSpec,
    stage: StageShards,
    layout: ServingLayout,
    *,
    tokens: int,
    sequences: int,
) -> int:
    """Peak of activations in a step of ``tokens``: the larger of one layer's and of the logits.

    A layer holds its input, the residual and the normed input, and what its widest block makes: gate
    and up projections and their product, of a routed expert for every token's choices; or the
    logits of ``sequences`` while tokens are sampled.
    """
    widest = max(
        (
            _made_per_token(block, model.hidden_size, layout)
            for group in stage.layers
            for _, block in group.layer.blocks
        ),
        default=0.0,
    )
    layer = tokens * 2 * (3 * model.hidden_size + widest)
    logits = min(sequences, tokens) * model.vocab_size * LOGIT_BYTES
    return int(max(layer, logits))


def _made_per_token(block: object, hidden_size: int, layout: ServingLayout) -> float:
    """Elements that a block makes of one token on one rank."""
    if isinstance(block, MlpSpec):
        return (3 if block.gated else 2) * block.intermediate_size / layout.tp
    if isinstance(block, MoeSpec):
        width = 3 * block.expert.intermediate_size / layout.expert_tp
        return block.experts_per_token * (width + hidden_size) * layout.attention_dp / layout.ep
    heads = getattr(block, "num_attention_heads", 0) or 0
    head_dim = getattr(block, "head_dim", None) or getattr(block, "qk_head_dim", 0) or 0
    return 3.0 * heads * head_dim / layout.tp


def _communicator_bytes(layout: ServingLayout) -> int:
    """Buffers of the communicators a rank is in: of its stage, and of the pipeline."""
    stage = COMMUNICATOR_BYTES.get(layout.ranks_per_stage, LARGE_COMMUNICATOR_BYTES)
    return stage + COMMUNICATOR_BYTES[1 if layout.pp == 1 else 2]


def least_fraction(memory: ReplicaMemory) -> float:
    """Share of the device that weights, other buffers and one request of full length take; above
    ``MOST_OF_DEVICE`` no setting of the engine makes it fit."""
    held = memory.worst.memory
    request = memory.worst.cache.request_bytes(memory.request_tokens)
    return (held.total - held.kv_cache + request) / memory.capacity_bytes
