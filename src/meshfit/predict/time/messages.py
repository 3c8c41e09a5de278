"""What is sent: the bytes of every message, and how often a step has it.

The one place where bytes and counts along an axis are written down: the step time prices the same
sizes (``predict.time.exchange``), and ``plan --explain`` shows them. Sizes are whole buffers as
nccl-tests counts them (``collectives.CollectiveCosts.seconds``).

Left out, as they are small: padding, statistics of routers, the norm of gradients (one number), and
gradients of norms that tensor-parallel ranks sum once a step under sequence parallelism.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import RECOMPUTE
from meshfit.predict.costs.collectives import Collective
from meshfit.predict.memory.logits import loss_kind
from meshfit.predict.memory.states import frozen_bytes
from meshfit.predict.shape.columns import StepColumns
from meshfit.predict.shape.context import context_method
from meshfit.predict.shape.cut import cuts_mixers, is_cut
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.held import Held, Parameters, ends_held, layer_held, layers_held
from meshfit.predict.shape.layer_basis import FP32_BYTES
from meshfit.predict.shape.schedule import RankShape
from meshfit.predict.time.recompute import recomputed_share
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.counts import embedding_parameters
from meshfit.workload.model import LayerSpec, MoeSpec
from meshfit.workload.training import TrainingSpec

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

BLOCKS_AROUND_EXPERTS = 2
"""Exchanges around the experts of a layer in one pass: dispatch and combine."""
LOSS_SUMS = {"plain": 3, "chunked": 3, "fused": 2}
"""Sums over ranks of a loss whose vocabulary is divided, each a number a token in fp32: the largest
logit, the target's, and the sum of exponentials; a fused loss sends the last two together
(Megatron-Core, ``core/tensor_parallel/cross_entropy.py`` and ``core/fusions``)."""
LOSS_SUM_BYTES = 4

TERM_AXES = {"etp": "tp", "edp": "dp_shard"}
"""Axes of experts, and those whose terms hold their time (``terms.EXPOSED_TERMS``)."""


@dataclass(frozen=True)
class Size:
    """Bytes of a message as a product of what it is made of, each factor with its word."""

    factors: tuple[tuple[FloatArray | IntArray | float, str], ...]

    @property
    def bytes(self) -> FloatArray:
        """The product, for every layout."""
        return np.asarray(prod(value for value, _ in self.factors), dtype=np.float64)

    def times(self, count: FloatArray | IntArray | float) -> "Size":
        """So many of them together."""
        return Size(((count, ""), *self.factors))

    def text(self) -> str:
        """The product of the first layout, in words."""
        return " x ".join(f"{_number(value)} {word}".strip() for value, word in self.factors)


def _number(value: FloatArray | IntArray | float) -> str:
    first = float(np.ravel(value)[0])
    return f"{first:,.0f}" if first >= 100 or first.is_integer() else f"{first:.4g}"


@dataclass(frozen=True, kw_only=True)
class Message:
    """One kind of message of one pipeline rank, for every layout of a group.

    Attributes:
        collective, axis: what it is, and along which ranks: a mesh axis, or ``ep``, ``etp``, ``edp``.
        what: what is sent, in words.
        size: the whole buffer of one.
        times: of it in one optimizer step.
        ranks: that take part.
    """

    collective: Collective
    axis: str
    what: str
    size: Size
    times: FloatArray
    ranks: IntArray

    @property
    def size_bytes(self) -> FloatArray:
        return self.size.bytes

    @property
    def term(self) -> str:
        """The term of a step that holds its time."""
        return f"{self.collective}.{TERM_AXES.get(self.axis, self.axis)}"

    @property
    def passes_whole(self) -> bool:
        """Whether each rank sends all of the buffer. Keys that go round a ring of context-parallel
        ranks are the buffer of all of them, of which none sends its own neighbour's."""
        return self.collective in ("broadcast", "send_recv") and self.axis != "cp"

    @property
    def sent_bytes(self) -> FloatArray:
        """What each rank sends in a step; 0 where it is alone.

        A ring's share of the buffer: all_reduce ``2 (n - 1) / n``, all_gather, reduce_scatter,
        all_to_all and a ring of sends ``(n - 1) / n``, a broadcast or a send all of it (nccl-tests,
        doc/PERFORMANCE.md).
        """
        share = (self.ranks - 1) / self.ranks
        if self.collective == "all_reduce":
            share = 2 * share
        elif self.passes_whole:
            share = np.where(self.ranks > 1, 1.0, 0.0)
        return np.asarray(share * self.size_bytes * self.times)


@dataclass(frozen=True, kw_only=True)
class PassCounts:
    """How often a layer has an exchange in one micro-batch: in its forward, in its backward, and in
    what recomputation runs again before that."""

    forward: FloatArray | float
    backward: FloatArray | float
    again: FloatArray | float

    @property
    def total(self) -> FloatArray:
        return np.asarray(self.forward + self.backward + self.again)


def rank_messages(shape: RankShape, group: LayoutGroup) -> tuple[Message, ...]:
    """Every message of one pipeline rank."""
    return (
        *_tensor_messages(shape, group),
        *_context_messages(shape, group),
        *_expert_messages(shape, group),
        *_pipeline_messages(shape, group),
        *_sharding_messages(shape, group),
        *_replication_messages(shape, group),
    )


# Tensor parallel


def _hidden(group: LayoutGroup, element_bytes: int) -> Size:
    tokens, width = group.columns.tokens, float(group.model.hidden_size)
    return Size(((tokens, "tokens"), (width, ""), (element_bytes, "B")))


def summed_hidden(group: LayoutGroup) -> Size:
    """Hidden states of one micro-batch as matmuls make them: partial sums of all ranks."""
    return _hidden(group, group.numerics.compute_bytes)


def gathered_hidden(group: LayoutGroup) -> Size:
    """Hidden states as tensor-parallel matmuls gather them: in fp8 where one scale serves all of a
    tensor, so that they can be cast before they are sent."""
    in_fp8 = group.training.precision.matmul == "fp8"
    before = in_fp8 and group.training.runtime.fp8_recipe not in ("rowwise", "blockwise", "mxfp8")
    return _hidden(group, 1 if before else group.numerics.residual_bytes)


def logits(group: LayoutGroup) -> Size:
    """Logits of one micro-batch over the whole vocabulary."""
    vocabulary, element = float(group.model.vocab_size), group.numerics.compute_bytes
    return Size(((group.columns.tokens, "tokens"), (vocabulary, ""), (element, "B")))


def loss_sums(group: LayoutGroup) -> Size:
    """One number a token, that ranks with a part of the vocabulary each add up."""
    return Size(((group.columns.tokens, "tokens"), (LOSS_SUM_BYTES, "B")))


def is_sequence_parallel(group: LayoutGroup) -> BoolArray:
    """Whether tensor-parallel ranks divide the sequence between blocks."""
    return group.columns.sequence_split > 1


def tensor_exchanges(kind: LayerSpec, group: LayoutGroup) -> FloatArray:
    """Exchanges that tensor parallelism makes around a layer's blocks in one pass: one a block that
    is cut, one for all where they are computed side by side.

    Routed experts that ep divides take and return their tokens through it; what runs beside them (a
    shared expert) is cut like an MLP.
    """
    cut = sum((_is_exchanged(block, group) for _, block in kind.blocks), start=np.zeros(len(group)))
    return np.minimum(cut, 1.0) if kind.parallel else cut


def _is_exchanged(block: Block, group: LayoutGroup) -> FloatArray:
    cut = float(is_cut(block, group.model.hidden_size, group.profile))
    if not isinstance(block, MoeSpec):
        return np.full(len(group), cut)
    beside = float(block.shared is not None or block.dense is not None)
    return np.where(group.columns.splits_experts, beside, cut)


def block_sums(exchanges: FloatArray, group: LayoutGroup) -> PassCounts:
    """Sums after blocks forward, and of the gradients of their inputs backward. Where recomputation
    stops once it has what backward needs, the last block's sum is not made again."""
    needless = 1.0 if group.profile.recomputes_what_is_needed else 0.0
    again = recomputed_share(group) * np.maximum(exchanges - needless, 0.0)
    return PassCounts(forward=exchanges, backward=exchanges, again=again)


def block_gathers(exchanges: FloatArray, group: LayoutGroup) -> PassCounts:
    """Gathers of the sequence before blocks forward, and of the gradients of their outputs backward.
    PyTorch's recomputation by operation keeps sums and makes gathers again (torchtitan,
    ``distributed/activation_checkpoint.py``)."""
    by_operation = group.candidates.recompute == RECOMPUTE.index("operations")
    again = recomputed_share(group) + (by_operation & group.profile.saves_gathered_inputs)
    return PassCounts(forward=exchanges, backward=exchanges, again=again * exchanges)


def input_gathers(exchanges: FloatArray | float, group: LayoutGroup) -> FloatArray:
    """Gathers of blocks' inputs once more, for the gradients of their weights: where the gathered
    ones are not kept (2205.05198, section 4.2.2; Megatron-Core, ``tensor_parallel/layers.py``)."""
    return np.asarray(exchanges * (0.0 if group.profile.saves_gathered_inputs else 1.0))


def loss_exchanges(group: LayoutGroup) -> int:
    """Sums over ranks that a loss over a divided vocabulary makes in one micro-batch."""
    if group.profile.gathers_logits:
        return 0
    return LOSS_SUMS[loss_kind(group)]


def _tensor_messages(shape: RankShape, group: LayoutGroup) -> Iterator[Message]:
    """Around every block that is cut an all_reduce, or under sequence parallelism a gather and a
    scatter; half of one around embedding and head, and what the loss needs."""
    columns, is_sequence = group.columns, is_sequence_parallel(group)
    embedding, head = int(shape.chunks[0].has_embedding), int(shape.chunks[-1].has_head)
    sums: FloatArray = np.zeros(len(group)) + embedding + head
    gathers: FloatArray = np.zeros(len(group)) + embedding + head + input_gathers(head, group)
    for kind, count in shape.layers:
        exchanges = tensor_exchanges(kind, group)
        sums = sums + count * block_sums(exchanges, group).total
        again = input_gathers(exchanges, group)
        gathers = gathers + count * (block_gathers(exchanges, group).total + again)
    m = columns.micro_batches
    for collective, size, times, what in (
        ("all_reduce", summed_hidden(group), np.where(is_sequence, 0, sums), "partial sums"),
        ("reduce_scatter", summed_hidden(group), np.where(is_sequence, sums, 0), "partial sums"),
        ("all_gather", gathered_hidden(group), np.where(is_sequence, gathers, 0), "the sequence"),
    ):
        around = f"{what} around each block that is cut, embedding and head"
        yield _message(collective, "tp", around, size, times=m * times, ranks=columns.tp)
    if head and group.profile.gathers_logits:
        yield _message("all_gather", "tp", "logits", logits(group), times=m, ranks=columns.tp)
    if head and loss_exchanges(group):
        times = m * loss_exchanges(group)
        yield _message(
            "all_reduce", "tp", "sums of the loss", loss_sums(group), times=times, ranks=columns.tp
        )


# Context parallel


def keys(kind: LayerSpec, group: LayoutGroup) -> Size:
    """Keys and values of one layer, of all context-parallel ranks that exchange them together."""
    columns, element = group.columns, group.numerics.compute_bytes
    tokens = columns.tokens * columns.key_ranks
    return Size(((tokens, "tokens"), (_keys_width(kind, group), ""), (element, "B")))


def heads(kind: LayerSpec, group: LayoutGroup) -> Size:
    """Queries, keys, values and output of one layer on one context-parallel rank."""
    element = group.numerics.compute_bytes
    width = _keys_width(kind, group) + _queries_width(kind, group)
    return Size(((group.columns.tokens, "tokens"), (width, ""), (element, "B")))


def _keys_width(kind: LayerSpec, group: LayoutGroup) -> FloatArray:
    """Elements a token of keys and values on one tensor-parallel rank. A latent is expanded to heads
    before it is exchanged (Megatron-Core)."""
    tp, width = group.columns.tp, np.zeros(len(group))
    for _, block in kind.blocks:
        if isinstance(block, AttentionSpec):
            repeats = group.profile.repeats_keys
            held = block.num_attention_heads if repeats else block.num_key_value_heads
            width = width + np.ceil(held / tp) * (block.head_dim + block.value_dim)
        elif isinstance(block, LatentAttentionSpec):
            each = block.qk_head_dim + block.v_head_dim
            width = width + block.num_attention_heads * each / tp
    return width


def _queries_width(kind: LayerSpec, group: LayoutGroup) -> FloatArray:
    """Elements a token of queries and outputs on one tensor-parallel rank."""
    width = 0
    for _, block in kind.blocks:
        if isinstance(block, AttentionSpec):
            width += block.num_attention_heads * (block.head_dim + block.value_dim)
        elif isinstance(block, LatentAttentionSpec):
            width += block.num_attention_heads * (block.qk_head_dim + block.v_head_dim)
    return width / group.columns.tp


def context_passes(method: str, group: LayoutGroup) -> PassCounts:
    """How often keys and values (or heads) of a layer move: k and v forward, and backward again with
    their gradients coming back (twice as wide where these are fp32); an all_to_all once each way.
    Recomputed attention moves them again.
    """
    reruns_core = group.candidates.recompute == RECOMPUTE.index("selective")
    again = recomputed_share(group) + reruns_core
    in_fp32 = method == "send_recv" and group.profile.ring_gradients_in_fp32
    gradients = FP32_BYTES / group.numerics.compute_bytes if in_fp32 else 1.0
    backward = 1.0 if method == "all_to_all" else 1.0 + gradients
    return PassCounts(forward=1.0, backward=backward, again=again)


def _context_messages(shape: RankShape, group: LayoutGroup) -> Iterator[Message]:
    columns = group.columns
    if bool(np.all(columns.cp <= 1)):
        return
    for kind, count in shape.layers:
        for name, is_used in context_method(group).items():
            is_exchange = name == "all_to_all"
            what = "queries, keys, values and outputs" if is_exchange else "keys and values"
            size = heads(kind, group) if is_exchange else keys(kind, group)
            ranks = columns.head_ranks if is_exchange else columns.key_ranks
            times = columns.micro_batches * count * context_passes(name, group).total * is_used
            yield _message(name, "cp", what, size, times=times, ranks=ranks)


# Experts


def dispatched(moe: MoeSpec, group: LayoutGroup) -> Size:
    """Tokens of one micro-batch on one rank as its router sends them to experts, in the compute type
    (fp8 recipes cast behind the dispatch): each one to as many as it chooses, none dropped."""
    columns, width = group.columns, float(moe.expert_input_size or group.model.hidden_size)
    tokens, element = columns.tokens / columns.sequence_split, group.numerics.compute_bytes
    chosen = (float(moe.experts_per_token), "experts")
    return Size(((tokens, "tokens"), chosen, (width, ""), (element, "B")))


def expert_passes(group: LayoutGroup) -> PassCounts:
    """Passes over the experts of a layer in one micro-batch."""
    return PassCounts(forward=1.0, backward=1.0, again=recomputed_share(group))


def _expert_messages(shape: RankShape, group: LayoutGroup) -> Iterator[Message]:
    """Dispatch and combine around the experts of every layer; with etp, its ranks see each other's
    tokens."""
    columns, c = group.columns, group.candidates
    for kind, count in shape.layers:
        if kind.moe is None or not columns.splits_experts.any():
            continue
        size = dispatched(kind.moe, group)
        passes = count * columns.micro_batches * expert_passes(group).total * columns.splits_experts
        what = "dispatch of tokens to their experts, and their return"
        times = BLOCKS_AROUND_EXPERTS * passes
        yield _message("all_to_all", "ep", what, size, times=times, ranks=c.ep)
        for collective in ("all_gather", "reduce_scatter"):
            what = "tokens of the ranks that share an expert"
            yield _message(collective, "etp", what, size.times(c.etp), times=passes, ranks=c.etp)


# Pipeline


def boundary(group: LayoutGroup) -> Size:
    """Hidden states of one micro-batch as they pass from stage to stage, of one rank."""
    columns = group.columns
    split = columns.tp if group.profile.scatters_pipeline_exchange else columns.sequence_split
    width, element = float(group.model.hidden_size), group.numerics.residual_bytes
    return Size(((columns.tokens / split, "tokens"), (width, ""), (element, "B")))


def gathers_boundary(group: LayoutGroup) -> BoolArray:
    """Whether tensor-parallel ranks put together what each received a share of: where they send
    shares though all of them need the whole (2104.04473, section 4.1)."""
    return np.asarray(group.profile.scatters_pipeline_exchange & ~is_sequence_parallel(group))


def received_hidden(group: LayoutGroup) -> Size:
    """What they put together."""
    return _hidden(group, group.numerics.residual_bytes)


def tied_gradient(group: LayoutGroup) -> Size:
    """Gradient of an embedding that the first and the last stage both hold."""
    held = embedding_parameters(group.model) / group.columns.tp
    return Size(((held, "parameters"), (group.training.precision.gradient_bytes, "B")))


def holds_tied_copy(shape: RankShape, group: LayoutGroup) -> bool:
    """Whether another stage holds a copy of this one's embedding."""
    ends = shape.chunks[0].has_embedding, shape.chunks[-1].has_head
    return group.model.tie_word_embeddings and sum(ends) == 1


def _pipeline_messages(shape: RankShape, group: LayoutGroup) -> Iterator[Message]:
    """Hidden states received and their gradients, once a micro-batch at each cut; the gradient of a
    tied embedding once."""
    columns, received = group.columns, group.pipeline.receives(shape.rank)
    times = columns.micro_batches * received
    what = "hidden states to the next stage, gradients to the one before"
    yield _message("send_recv", "pp", what, boundary(group), times=times, ranks=columns.pp)
    if received:
        what, gathered = "shares of what a stage received", times * gathers_boundary(group)
        yield _message(
            "all_gather", "tp", what, received_hidden(group), times=gathered, ranks=columns.tp
        )
    if holds_tied_copy(shape, group):
        what = "gradient of the tied embedding, held on two stages"
        two = np.minimum(columns.pp, 2)
        yield _message(
            "all_reduce", "pp", what, tied_gradient(group), times=np.ones(len(group)), ranks=two
        )


# States


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """Which ranks share the states of what: of all that is not experts with groups of their own, or
    of these.

    Attributes:
        axis: ``dp_shard`` or ``edp``.
        shards: ranks over which states are divided.
        replicas: ranks that hold the same shard; replica_axis: along which they lie.
    """

    axis: str
    shards: IntArray
    replicas: IntArray
    replica_axis: str = "dp_replicate"

    def of(self, parameters: Parameters, columns: StepColumns) -> FloatArray:
        """Of these parameters, what one rank holds before data parallelism shards anything."""
        experts = parameters.experts / columns.expert_split
        if self.axis == "edp":
            return np.where(columns.splits_experts, experts, 0.0)
        shared = parameters.dense(columns)
        if not parameters.experts:
            return shared
        return shared + np.where(columns.splits_experts, 0.0, experts)


def sharings(group: LayoutGroup) -> tuple[Sharing, ...]:
    """Of dense parameters; with expert parallelism of experts too."""
    columns = group.columns
    dense = Sharing(axis="dp_shard", shards=columns.state_shard, replicas=columns.replicas)
    if not columns.splits_experts.any() or all(kind.moe is None for kind in group.model.layers):
        return (dense,)
    folds_replicas = "dp_replicate" in group.profile.expert_fold
    experts = Sharing(
        axis="edp",
        shards=columns.expert_shard,
        replicas=columns.expert_replicas,
        replica_axis="edp" if folds_replicas else "dp_replicate",
    )
    return dense, experts


def layer_states(kind: LayerSpec, group: LayoutGroup) -> Held:
    """Parameters of one layer."""
    return layer_held(
        kind,
        group.model.hidden_size,
        group.model.vectors_per_norm,
        group.training.adapter,
        mixers_cut=cuts_mixers(group.profile),
    )


def ends_states(shape: RankShape, group: LayoutGroup) -> Held:
    """Parameters of a rank beside layers."""
    return ends_held(shape, group.model, group.training.adapter)


def rank_states(shape: RankShape, group: LayoutGroup) -> Held:
    """All parameters of a rank."""
    model = group.model
    layers = layers_held(
        shape.layers,
        model.hidden_size,
        model.vectors_per_norm,
        group.training.adapter,
        mixers_cut=cuts_mixers(group.profile),
    )
    return ends_states(shape, group) + layers


def gathered_parameters(held: Held, sharing: Sharing, group: LayoutGroup) -> Size:
    """Parameters as they are gathered for use; frozen ones as they are stored."""
    columns, training = group.columns, group.training
    trained, element = sharing.of(held.trained, columns), _gathered_bytes(training)
    if training.adapter is None:
        return Size(((trained, "parameters"), (element, "B")))
    frozen = sharing.of(frozen_bytes(held, training, training.precision.compute_bytes), columns)
    return Size(((trained * element + frozen, "B"),))


def _gathered_bytes(training: TrainingSpec) -> int:
    """Of one trained parameter: in fp8 where the job asks for it, which adapters never are."""
    in_fp8 = training.precision.matmul == "fp8" and training.runtime.fp8_parameters
    return 1 if in_fp8 and training.adapter is None else training.precision.compute_bytes


def reduced_gradients(
    held: Held, sharing: Sharing, group: LayoutGroup, shards: IntArray | int = 1
) -> Size:
    """Gradients of one rank as they are summed, or of one of so many shards of them."""
    trained = sharing.of(held.trained, group.columns) / shards
    return Size(((trained, "parameters"), (group.training.precision.gradient_bytes, "B")))


def updated_parameters(held: Held, sharing: Sharing, group: LayoutGroup) -> Size:
    """What a sharded optimizer has updated, as every rank needs it: gathered in the type that layers
    compute in, or broadcast as it is kept."""
    training = group.training
    is_gathered = scatters_whole_gradients(group)
    element = _gathered_bytes(training) if is_gathered else training.precision.parameter_bytes
    return Size(((sharing.of(held.trained, group.columns), "parameters"), (element, "B")))


def scatters_whole_gradients(group: LayoutGroup) -> bool:
    """Whether an optimizer that is sharded beside whole parameters gets its gradients by a scatter;
    else all are summed everywhere, and updates broadcast (``ZeroRedundancyOptimizer``)."""
    return group.profile.scatters_gradients or not group.profile.stage_2_shards_parameters


def shards_beside_whole_parameters(group: LayoutGroup) -> BoolArray:
    """Whether the optimizer is sharded while parameters stay whole (stage 1, and 2 outside FSDP)."""
    return group.columns.shards_optimizer & ~group.columns.shards_parameters


def gathers_once(group: LayoutGroup) -> BoolArray:
    """Whether a pipeline stage keeps gathered parameters over all micro-batches."""
    columns = group.columns
    return columns.keeps_gradients & ~columns.frees_after_forward & (columns.pp > 1)


def whole_gradient_reductions(group: LayoutGroup) -> IntArray:
    """How often a step scatters gradients of whole parameters: once, or after every micro-batch
    where no rank keeps more than its shard of them (stage 2)."""
    columns = group.columns
    each = columns.shards_gradients & ~columns.keeps_gradients
    return np.where(each, columns.micro_batches, 1)


def _sharding_messages(shape: RankShape, group: LayoutGroup) -> Iterator[Message]:
    """Gathers of sharded parameters and scatters of their gradients: layer by layer, and the root
    unit's. Stage 3 gathers layers again for their backward, with or without recomputation (their
    forward runs again between that gather and their backward)."""
    columns, m = group.columns, group.columns.micro_batches
    if not columns.shards_parameters.any():
        return
    forward = np.where(gathers_once(group), 1, m) * columns.shards_parameters
    again = m * columns.frees_after_forward * columns.shards_parameters
    scatters = np.where(columns.keeps_gradients, 1, m) * columns.shards_parameters
    units = [("a layer", layer_states(kind, group), n, again) for kind, n in shape.layers]
    root = ("embedding, head and final norm", ends_states(shape, group), 1, np.zeros(len(group)))
    for name, held, count, backward in (*units, root):
        for sharing in sharings(group):
            of = "experts of a layer" if sharing.axis == "edp" else name
            gathered = gathered_parameters(held, sharing, group)
            gathers = _present(gathered, count * (forward + backward))
            yield _message(
                "all_gather",
                sharing.axis,
                f"weights of {of}",
                gathered,
                times=gathers,
                ranks=sharing.shards,
            )
            reduced = reduced_gradients(held, sharing, group)
            times = _present(reduced, count * scatters)
            yield _message(
                "reduce_scatter",
                sharing.axis,
                f"gradients of {of}",
                reduced,
                times=times,
                ranks=sharing.shards,
            )


def _replication_messages(shape: RankShape, group: LayoutGroup) -> Iterator[Message]:
    """Gradients over replicas once a step; where whole parameters have a sharded optimizer, also
    gradients to their shards and updates back."""
    held = rank_states(shape, group)
    for sharing in sharings(group):
        yield from _sums_over_replicas(held, sharing, group)
        if shards_beside_whole_parameters(group).any():
            yield from _whole_parameter_messages(held, sharing, group)


def _sums_over_replicas(held: Held, sharing: Sharing, group: LayoutGroup) -> Iterator[Message]:
    columns, beside = group.columns, shards_beside_whole_parameters(group)
    scatters = scatters_whole_gradients(group)
    sharded = columns.shards_parameters | (beside & scatters)
    shards = np.where(sharded, sharing.shards, 1)
    size = reduced_gradients(held, sharing, group, shards)
    times = _present(size, np.where(beside & (not scatters), 0, 1))
    what = "gradients of experts" if sharing.axis == "edp" else "gradients"
    yield _message(
        "all_reduce", sharing.replica_axis, what, size, times=times, ranks=sharing.replicas
    )


def _whole_parameter_messages(
    held: Held, sharing: Sharing, group: LayoutGroup
) -> Iterator[Message]:
    beside, scatters = shards_beside_whole_parameters(group), scatters_whole_gradients(group)
    collectives = ("reduce_scatter", "all_gather") if scatters else ("all_reduce", "broadcast")
    everyone = sharing.shards * (1 if scatters else sharing.replicas)
    reduced = reduced_gradients(held, sharing, group)
    updated = updated_parameters(held, sharing, group)
    reductions = beside * whole_gradient_reductions(group)
    for collective, what, size, times, ranks in (
        (collectives[0], "gradients", reduced, reductions, everyone),
        (collectives[1], "updated weights", updated, beside, sharing.shards),
    ):
        yield _message(
            collective, sharing.axis, what, size, times=_present(size, times), ranks=ranks
        )


def _present(size: Size, times: FloatArray | IntArray | BoolArray) -> FloatArray:
    """``times``, but none of a message without content."""
    return np.where(size.bytes > 0, times, 0.0)


def _message(
    collective: str,
    axis: str,
    what: str,
    size: Size,
    *,
    times: FloatArray | IntArray | float,
    ranks: IntArray,
) -> Message:
    return Message(
        collective=collective,  # type: ignore[arg-type]
        axis=axis,
        what=what,
        size=size,
        times=np.asarray(times, dtype=np.float64),
        ranks=ranks,
    )
