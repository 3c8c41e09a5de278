"""What each rank sends in one optimizer step, along which axis, and by which formula.

Counted from the layout and the blocks of the model alone, so for any kind of model; sizes are whole
buffers as nccl-tests counts them, and a rank sends a ring's share of them (nccl-tests,
doc/PERFORMANCE.md). Left out: padding, router statistics, norms of gradients, and what heads for
multi-token prediction send.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from meshfit.funnel.holdings import (
    PipelineRank,
    ends_holding,
    is_cut,
    layer_holding,
    rank_holding,
)
from meshfit.mesh.groups import groups
from meshfit.mesh.spec import LayoutSpec
from meshfit.profile import EngineProfile
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.counts import embedding_parameters
from meshfit.workload.model import AttentionSpec, ModelSpec, MoeSpec
from meshfit.workload.training import TrainingSpec

Collective = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"
]

CONTEXT_EXCHANGES = {"ring": "send_recv", "all_gather": "all_gather", "all_to_all": "all_to_all"}
"""How context parallelism exchanges -> the collective; a ring where a layout does not say."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Equal messages of one pipeline rank.

    Attributes:
        axis: mesh axis, ``ep``, ``etp`` or ``edp`` along whose ranks it goes.
        what: what is sent, in words.
        size_bytes: the whole buffer of one message; ``size``: how it comes about.
        times: of it in one optimizer step.
        ranks: that take part.
    """

    axis: str
    collective: Collective
    what: str
    size_bytes: float
    size: str
    times: int
    ranks: int

    @property
    def sent_bytes(self) -> float:
        """What each rank sends in a step."""
        return self.times * self._share * self.size_bytes

    @property
    def formula(self) -> str:
        """``sent_bytes`` as a product."""
        share = {
            "all_reduce": f"2 x {self.ranks - 1}/{self.ranks}",
            "broadcast": "",
            "send_recv": "",
        }
        factor = share.get(self.collective, f"{self.ranks - 1}/{self.ranks}")
        if self.axis == "cp":
            factor = f"{self.ranks - 1}/{self.ranks}"
        return " x ".join(part for part in (f"{self.times:,}", factor, self.size) if part)

    @property
    def _share(self) -> float:
        ring = (self.ranks - 1) / self.ranks
        if self.collective == "all_reduce":
            return 2 * ring
        passes_whole = self.collective in ("broadcast", "send_recv") and self.axis != "cp"
        return 1.0 if passes_whole else ring


@dataclass(frozen=True, kw_only=True)
class Step:
    """One optimizer step of one layout of one model on one engine."""

    model: ModelSpec
    training: TrainingSpec
    layout: LayoutSpec
    profile: EngineProfile

    @property
    def tokens(self) -> int:
        """Of one micro-batch on one rank."""
        layout = self.layout
        return math.ceil(layout.micro_batch_size * self.training.sequence_length / layout.cp)

    @property
    def micro_batches(self) -> int:
        return max(1, self.layout.num_micro_batches(self.training.global_batch_size))

    @property
    def passes(self) -> int:
        """Forward and backward, and forward again where whole layers are recomputed."""
        return 3 if self.layout.recompute == "full" else 2

    @property
    def sequence_split(self) -> int:
        """By how much sequence parallelism divides what lies between blocks."""
        return self.layout.tp if self.layout.sp else 1

    @property
    def compute_bytes(self) -> int:
        return self.training.precision.compute_bytes

    @property
    def residual_bytes(self) -> int:
        """Of an element between blocks: under autocast, in the type of the parameters."""
        is_cast = self.through_fsdp or self.profile.memory_model != "pytorch"
        return self.compute_bytes if is_cast else self.training.precision.parameter_bytes

    @property
    def shards_parameters(self) -> bool:
        stage = self.layout.zero_stage
        return stage >= 3 or (stage == 2 and self.profile.stage_2_shards_parameters)

    @property
    def shards_gradients(self) -> bool:
        return self.layout.zero_stage >= 2

    @property
    def through_fsdp(self) -> bool:
        """Whether FSDP2's hooks gather parameters and reduce gradients."""
        layout = self.layout
        combined = (layout.tp > 1 or layout.pp > 1) and self.profile.replicates_through_fsdp
        return layout.data_parallel_size > 1 and (self.shards_parameters or combined)

    @property
    def keeps_gradients(self) -> bool:
        """Whether whole gradients wait for the last micro-batch before they are reduced."""
        by_pipeline = self.layout.pp > 1 and self.profile.pipeline_keeps_unsharded
        reduces_once = not self.shards_gradients or not self.profile.reduces_each_micro_batch
        return by_pipeline or reduces_once

    @property
    def state_ranks(self) -> int:
        """Ranks that share the states of what experts are not."""
        layout = self.layout
        return layout.dp_shard * layout.cp if layout.zero_stage > 0 else 1

    @property
    def replicas(self) -> int:
        return self.layout.data_parallel_size * self.layout.cp // self.state_ranks

    @cached_property
    def expert_data_ranks(self) -> int:
        """Ranks that hold the same experts, but for what sharding divides."""
        layout = self.layout
        if layout.ep == 1:
            return 1
        found = groups(layout, "edp", self.profile.rank_order, self.profile.expert_fold)
        return int(found.shape[1])

    @property
    def expert_replicas(self) -> int:
        """Replicas that experts do not fold into their own groups."""
        is_folded = "dp_replicate" in self.profile.expert_fold
        return 1 if is_folded else self.layout.dp_replicate


def exchanges(rank: PipelineRank, step: Step) -> tuple[Exchange, ...]:
    """Everything that one pipeline rank sends; nothing where it is alone on an axis."""
    every = (
        *_tensor_parallel(rank, step),
        *_context_parallel(rank, step),
        *_experts(rank, step),
        *_pipeline(rank, step),
        *_shared_states(rank, step),
        *_expert_states(rank, step),
    )
    return tuple(one for one in every if one.ranks > 1 and one.times and one.size_bytes)


# Activations


def _tensor_parallel(rank: PipelineRank, step: Step) -> Iterator[Exchange]:
    """Around every block that is cut one exchange a pass, half of one around embedding and head."""
    m, layout = step.micro_batches, step.layout
    cut = sum(
        count * sum(_exchanges_whole(block, step) for _, block in layer.blocks)
        for layer, count in rank.layers.items()
    )
    around = m * step.passes * cut
    ends = m * (rank.has_embedding + rank.has_head)
    if layout.sp:
        what = "the sequence, gathered and scattered around each block that is cut"
        for collective in ("all_gather", "reduce_scatter"):
            yield _hidden(step, collective, what=what, times=around)
            what_ends = "the same at embedding and head"
            yield _hidden(step, collective, what=what_ends, times=ends)
    else:
        yield _hidden(
            step, "all_reduce", what="partial sums of each block that is cut", times=around
        )
        yield _hidden(step, "all_reduce", what="the same at embedding and head", times=ends)
    if rank.has_head and step.profile.gathers_logits:
        vocabulary, element = step.model.vocab_size, step.compute_bytes
        yield Exchange(
            axis="tp",
            collective="all_gather",
            what="logits",
            size_bytes=step.tokens * vocabulary * element,
            size=f"{step.tokens:,} tokens x {vocabulary:,} x {element} B",
            times=m,
            ranks=layout.tp,
        )


def _exchanges_whole(block: Block, step: Step) -> bool:
    """Whether tensor-parallel ranks exchange the hidden states around ``block``.

    Routed experts that ep divides take and return their tokens through it; what runs beside them
    (a shared expert) is cut like an MLP.
    """
    if isinstance(block, MoeSpec) and step.layout.ep > 1:
        return block.shared is not None or block.dense is not None
    return is_cut(block, step.model.hidden_size, step.profile)


def _hidden(step: Step, collective: Collective, *, what: str, times: int) -> Exchange:
    """Hidden states of one micro-batch over tp: gathered as they lie between blocks, summed as
    matmuls make them."""
    gathered = collective == "all_gather"
    element = step.residual_bytes if gathered else step.compute_bytes
    width = step.model.hidden_size
    return Exchange(
        axis="tp",
        collective=collective,
        what=what,
        size_bytes=step.tokens * width * element,
        size=f"{step.tokens:,} tokens x {width:,} x {element} B",
        times=times,
        ranks=step.layout.tp,
    )


def _context_parallel(rank: PipelineRank, step: Step) -> Iterator[Exchange]:
    """Keys and values of every attention: forward, and backward twice (again, and their gradients);
    an all-to-all of heads once each way."""
    layout = step.layout
    if layout.cp == 1:
        return
    method = layout.cp_method or step.profile.cp_method
    collective = CONTEXT_EXCHANGES.get(method, "send_recv")
    again = step.passes - 2
    passes = (2 if method == "all_to_all" else 3) + again
    for layer, count in rank.layers.items():
        for _, block in layer.blocks:
            width = _context_width(block, step, heads=method == "all_to_all")
            if not width:
                continue
            of_all = 1 if method == "all_to_all" else layout.cp
            tokens, element = step.tokens * of_all, step.compute_bytes
            yield Exchange(
                axis="cp",
                collective=collective,  # type: ignore[arg-type]
                what="queries, keys, values and outputs"
                if method == "all_to_all"
                else "keys and values",
                size_bytes=tokens * width * element,
                size=f"{tokens:,} tokens x {width:,} x {element} B",
                times=step.micro_batches * count * passes,
                ranks=layout.cp,
            )


def _context_width(block: Block, step: Step, *, heads: bool) -> int:
    """Elements a token that attention exchanges on one tensor-parallel rank; 0 in other blocks.

    A latent is expanded to heads before it is exchanged (Megatron-Core).
    """
    tp = step.layout.tp
    if isinstance(block, AttentionSpec):
        key_value = -(-block.num_key_value_heads // tp) * (block.head_dim + block.value_dim)
        query = block.num_attention_heads * (block.head_dim + block.value_dim) // tp
    elif isinstance(block, LatentAttentionSpec):
        key_value = block.num_attention_heads * (block.qk_head_dim + block.v_head_dim) // tp
        query = key_value
    else:
        return 0
    return query + key_value if heads else key_value


def _experts(rank: PipelineRank, step: Step) -> Iterator[Exchange]:
    """Dispatch and combine around every mixture of experts; with etp, its ranks see each other's
    tokens."""
    layout = step.layout
    if layout.ep == 1:
        return
    tokens, element = step.tokens / step.sequence_split, step.compute_bytes
    for layer, count in rank.layers.items():
        if layer.moe is None:
            continue
        width = layer.moe.expert_input_size or step.model.hidden_size
        top_k = layer.moe.experts_per_token
        size_bytes = tokens * top_k * width * element
        size = f"{tokens:,.0f} tokens x {top_k} experts x {width:,} x {element} B"
        passes = step.micro_batches * count * step.passes
        yield Exchange(
            axis="ep",
            collective="all_to_all",
            what="dispatch of tokens to their experts, and their return",
            size_bytes=size_bytes,
            size=size,
            times=2 * passes,
            ranks=layout.ep,
        )
        for collective in ("all_gather", "reduce_scatter"):
            yield Exchange(
                axis="etp",
                collective=collective,
                what="tokens of the ranks that share an expert",
                size_bytes=size_bytes * layout.etp,
                size=f"{layout.etp} x {size}",
                times=passes,
                ranks=layout.etp,
            )


def _pipeline(rank: PipelineRank, step: Step) -> Iterator[Exchange]:
    """Hidden states to the next stage and their gradients to the one before; a tied embedding's
    gradient once."""
    layout, model = step.layout, step.model
    tokens, element = step.tokens / step.sequence_split, step.residual_bytes
    yield Exchange(
        axis="pp",
        collective="send_recv",
        what="hidden states to the next stage, gradients to the one before",
        size_bytes=tokens * model.hidden_size * element,
        size=f"{tokens:,.0f} tokens x {model.hidden_size:,} x {element} B",
        times=step.micro_batches * rank.sends,
        ranks=layout.pp,
    )
    if model.tie_word_embeddings and layout.pp > 1 and rank.has_embedding != rank.has_head:
        held, element = (
            embedding_parameters(model) / layout.tp,
            step.training.precision.gradient_bytes,
        )
        yield Exchange(
            axis="pp",
            collective="all_reduce",
            what="gradient of the tied embedding, held on two stages",
            size_bytes=held * element,
            size=f"{held:,.0f} parameters x {element} B",
            times=1,
            ranks=2,
        )


# States


def _shared_states(rank: PipelineRank, step: Step) -> Iterator[Exchange]:
    """What all ranks but those of other experts share: gathers, scatters and sums over them."""
    layout, model = step.layout, step.model
    units = [
        ("a layer", layer_holding(layer, model, step.profile).shared(layout), count)
        for layer, count in rank.layers.items()
    ]
    root = ("embedding, head and final norm", ends_holding(rank, model).shared(layout), 1)
    whole = rank_holding(rank, model, step.profile).shared(layout)
    yield from _sharded(step, "dp_shard", step.state_ranks, units, root)
    yield from _whole_parameters(step, "dp_shard", step.state_ranks, step.replicas, whole)
    yield from _summed(step, "dp_replicate", step.replicas, whole, step.state_ranks)


def _expert_states(rank: PipelineRank, step: Step) -> Iterator[Exchange]:
    """Routed experts, over the ranks that hold the same ones (expert data parallel)."""
    layout, model = step.layout, step.model
    if layout.ep == 1:
        return
    held = ((layer_holding(layer, model, step.profile), n) for layer, n in rank.layers.items())
    units = [("experts of a layer", of_layer.experts(layout), n) for of_layer, n in held]
    whole = rank_holding(rank, model, step.profile).experts(layout)
    is_sharded = layout.zero_stage > 0
    ranks = step.expert_data_ranks
    shards, replicas = (ranks, step.expert_replicas) if is_sharded else (1, ranks)
    yield from _sharded(step, "edp", shards, units, None)
    yield from _whole_parameters(step, "edp", shards, replicas, whole)
    if is_sharded:
        yield from _summed(step, "dp_replicate", replicas, whole, shards, of="experts")
    else:
        yield from _summed(step, "edp", ranks, whole, 1, of="experts")
        yield from _summed(step, "dp_replicate", step.expert_replicas, whole, 1, of="experts")


Unit = tuple[str, float, int]
"""What is gathered at once, its parameters on one rank, and how often the rank has it."""


def _sharded(
    step: Step, axis: str, ranks: int, units: list[Unit], root: Unit | None
) -> Iterator[Exchange]:
    """Stages 2 and 3: parameters gathered for use, unit by unit, and gradients scattered. The root
    unit is gathered once a micro-batch, and so is every unit under stage 2."""
    if not step.shards_parameters:
        return
    m, pp = step.micro_batches, step.layout.pp
    frees = step.layout.zero_stage >= 3
    precision = step.training.precision
    once = step.keeps_gradients and not frees and pp > 1
    forward = 1 if once else m
    scatters = 1 if step.keeps_gradients else m
    for name, parameters, count, again in [
        *((*unit, m * frees) for unit in units),
        *([(*root, 0)] if root else []),
    ]:
        for collective, element, times in (
            ("all_gather", precision.compute_bytes, count * (forward + again)),
            ("reduce_scatter", precision.gradient_bytes, count * scatters),
        ):
            yield Exchange(
                axis=axis,
                collective=collective,  # type: ignore[arg-type]
                what=f"{'weights' if collective == 'all_gather' else 'gradients'} of {name}",
                size_bytes=parameters * element,
                size=f"{parameters:,.0f} parameters x {element} B",
                times=times,
                ranks=ranks,
            )


def _whole_parameters(
    step: Step, axis: str, shards: int, replicas: int, parameters: float
) -> Iterator[Exchange]:
    """A sharded optimizer with whole parameters: gradients are scattered and updates gathered; or
    all gradients summed over everyone and updates broadcast (``ZeroRedundancyOptimizer``)."""
    if step.layout.zero_stage == 0 or step.shards_parameters:
        return
    precision = step.training.precision
    scatters = step.shards_gradients or step.profile.scatters_gradients
    reductions = step.micro_batches if step.shards_gradients and not step.keeps_gradients else 1
    updated = precision.compute_bytes if scatters else precision.parameter_bytes
    everyone = shards if scatters else shards * replicas
    for collective, what, element, times, ranks in (
        (
            "reduce_scatter" if scatters else "all_reduce",
            "gradients",
            precision.gradient_bytes,
            reductions,
            everyone,
        ),
        ("all_gather" if scatters else "broadcast", "updated weights", updated, 1, shards),
    ):
        yield Exchange(
            axis=axis,
            collective=collective,  # type: ignore[arg-type]
            what=what,
            size_bytes=parameters * element,
            size=f"{parameters:,.0f} parameters x {element} B",
            times=times,
            ranks=ranks,
        )


def _summed(
    step: Step, axis: str, replicas: int, parameters: float, shards: int, *, of: str = ""
) -> Iterator[Exchange]:
    """Gradients over replicas, once a step."""
    if step.layout.zero_stage == 1 and not step.profile.scatters_gradients:
        return
    held = parameters / (shards if step.layout.zero_stage else 1)
    element = step.training.precision.gradient_bytes
    yield Exchange(
        axis=axis,
        collective="all_reduce",
        what=f"gradients of {of}" if of else "gradients",
        size_bytes=held * element,
        size=f"{held:,.0f} parameters x {element} B",
        times=1,
        ranks=replicas,
    )
