"""What is sent: the bytes of every message, and how often a step has it.

Sizes are whole buffers as nccl-tests counts them (``collectives.CollectiveCosts.time``). ``step``
prices the same sizes; that the counts agree too is tested with nothing overlapped.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import CP_METHODS
from meshfit.predict.activations import BytesPerToken
from meshfit.predict.collectives import Collective
from meshfit.predict.group import LayoutGroup
from meshfit.predict.parameters import ends_parameters, layer_parameters, on_rank, rank_parameters
from meshfit.predict.schedule import RankShape
from meshfit.workload.model import LayerSpec, MoeSpec

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

BLOCKS_AROUND_EXPERTS = 2
"""Exchanges around the experts of a layer in one pass: dispatch and combine."""

CONTEXT_PASSES = {"all_gather": 3, "send_recv": 3, "all_to_all": 2}
"""How often keys and values (or heads) of a layer move: k and v once forward and twice backward
(again, and their gradients); an all-to-all once each way."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """One kind of message of one pipeline rank, for every layout of a group.

    Attributes:
        collective, axis: what it is and along which ranks (``step.EXPOSED_TERMS``).
        size_bytes: the whole buffer of one.
        times: of it in one optimizer step.
        ranks: that take part.
    """

    collective: Collective
    axis: str
    size_bytes: FloatArray
    times: FloatArray
    ranks: IntArray

    @property
    def term(self) -> str:
        return f"{self.collective}.{self.axis}"

    @property
    def sent_bytes(self) -> FloatArray:
        """What each rank sends in a step; 0 where it is alone.

        A ring's share of the buffer: all_reduce ``2 (n - 1) / n``, all_gather, reduce_scatter and
        all_to_all ``(n - 1) / n``, a broadcast or a send all of it (nccl-tests,
        doc/PERFORMANCE.md).
        """
        share = (self.ranks - 1) / self.ranks
        if self.collective == "all_reduce":
            share = 2 * share
        elif self.collective in ("broadcast", "send_recv"):
            share = np.where(self.ranks > 1, 1.0, 0.0)
        return np.asarray(share * self.size_bytes * self.times)


def rank_messages(shape: RankShape, group: LayoutGroup) -> tuple[Message, ...]:
    """Every message of one pipeline rank."""
    return (
        *_tensor_messages(shape, group),
        *_context_messages(shape, group),
        *_pipeline_messages(shape, group),
        *_sharding_messages(shape, group),
        *_replication_messages(shape, group),
    )


# Sizes


def hidden_bytes(group: LayoutGroup, element_bytes: int) -> FloatArray:
    """Hidden states of one micro-batch, all of the sequence."""
    return group.columns.tokens * float(group.model.hidden_size * element_bytes)


def gathered_hidden_bytes(group: LayoutGroup) -> FloatArray:
    """Hidden states as tensor-parallel matmuls gather them: in fp8 where one scale serves all of a
    tensor, so that they can be cast before they are sent."""
    in_fp8 = group.training.precision.matmul == "fp8"
    before = in_fp8 and group.training.runtime.fp8_recipe not in ("rowwise", "blockwise", "mxfp8")
    return hidden_bytes(group, 1 if before else group.numerics.residual_bytes)


def logits_bytes(group: LayoutGroup) -> FloatArray:
    """Logits of one micro-batch over the whole vocabulary."""
    elements = group.model.vocab_size * group.numerics.compute_bytes
    return group.columns.tokens * float(elements)


def keys_bytes(kind: LayerSpec, group: LayoutGroup) -> FloatArray:
    """Keys and values of one layer, of all context-parallel ranks together."""
    attention, element = kind.attention, group.numerics.compute_bytes
    key = attention.num_key_value_heads * attention.head_dim
    return BytesPerToken(tp=2.0 * key * element).on_rank(group.columns) * group.columns.cp


def heads_bytes(kind: LayerSpec, group: LayoutGroup) -> FloatArray:
    """Queries, keys, values and output of one layer on one context-parallel rank."""
    attention, element = kind.attention, group.numerics.compute_bytes
    query = attention.num_attention_heads * attention.head_dim
    key = attention.num_key_value_heads * attention.head_dim
    return BytesPerToken(tp=(2.0 * query + 2.0 * key) * element).on_rank(group.columns)


def dispatched_bytes(moe: MoeSpec, group: LayoutGroup) -> FloatArray:
    """Tokens of one micro-batch on one rank as its router sends them to experts: each one to as
    many as it chooses, none dropped."""
    width = moe.expert_input_size or group.model.hidden_size
    elements = float(moe.experts_per_token * width * group.numerics.compute_bytes)
    return group.columns.tokens / group.columns.sequence_split * elements


def boundary_bytes(group: LayoutGroup) -> FloatArray:
    """Hidden states of one micro-batch as they pass from stage to stage, of one rank."""
    columns = group.columns
    share = columns.tp if group.profile.scatters_pipeline_exchange else columns.sequence_split
    return hidden_bytes(group, group.numerics.residual_bytes) / share


def gathered_parameters_bytes(parameters: FloatArray, group: LayoutGroup) -> FloatArray:
    """Parameters as they are gathered for use: in fp8 where the job asks for it."""
    in_fp8 = group.training.precision.matmul == "fp8" and group.training.runtime.fp8_parameters
    return parameters * (1 if in_fp8 else group.training.precision.compute_bytes)


def gradients_bytes(parameters: FloatArray, group: LayoutGroup) -> FloatArray:
    """Gradients of so many parameters as they are summed over ranks."""
    return parameters * group.training.precision.gradient_bytes


def updated_parameters_bytes(parameters: FloatArray, group: LayoutGroup) -> FloatArray:
    """Parameters after a sharded update, as every rank needs them."""
    return parameters * group.training.precision.parameter_bytes


# Messages


def tensor_exchanges(kind: LayerSpec) -> int:
    """Exchanges that tensor parallelism makes around a layer's blocks in one pass: one a block, one
    for all where they are computed side by side."""
    return 1 if kind.parallel else len(kind.blocks)


def _tensor_messages(shape: RankShape, group: LayoutGroup) -> Iterator[Message]:
    """Around every block an all_reduce, or under sequence parallelism a gather and a scatter; half
    of one around embedding and head, and the logits."""
    columns = group.columns
    passes = np.where(columns.recompute, 3, 2)
    blocks = sum(count * tensor_exchanges(kind) for kind, count in _layers(shape))
    embedding, head = int(shape.chunks[0].has_embedding), int(shape.chunks[-1].has_head)
    is_sequence = columns.sequence_split > 1
    reduces = columns.micro_batches * (blocks * passes + embedding + head)
    gathers = columns.micro_batches * (blocks * passes + head)
    reduced = hidden_bytes(group, group.numerics.compute_bytes)
    gathered = gathered_hidden_bytes(group)
    yield _message("all_reduce.tp", reduced, np.where(is_sequence, 0, reduces), columns.tp)
    yield _message("reduce_scatter.tp", reduced, np.where(is_sequence, reduces, 0), columns.tp)
    yield _message("all_gather.tp", gathered, np.where(is_sequence, gathers, 0), columns.tp)
    if head and group.profile.gathers_logits:
        yield _message("all_gather.tp", logits_bytes(group), columns.micro_batches, columns.tp)


def _context_messages(shape: RankShape, group: LayoutGroup) -> Iterator[Message]:
    columns, method = group.columns, group.candidates.cp_method
    exchanges = method == CP_METHODS.index("all_to_all")
    gathers = method == CP_METHODS.index("all_gather")
    used = {"all_to_all": exchanges, "all_gather": gathers, "send_recv": ~(exchanges | gathers)}
    if bool(np.all(columns.cp <= 1)):
        return
    for kind, count in _layers(shape):
        for name, is_used in used.items():
            size = heads_bytes(kind, group) if name == "all_to_all" else keys_bytes(kind, group)
            times = columns.micro_batches * count * CONTEXT_PASSES[name] * is_used
            yield _message(f"{name}.cp", size, times, columns.cp)


def expert_messages(shape: RankShape, group: LayoutGroup) -> tuple[Message, ...]:
    """Dispatch and combine around the experts of every layer, forward and backward (and forward
    again under recomputation). The step time does not hold them yet: experts are not modelled."""
    columns = group.columns
    passes = np.where(columns.recompute, 3, 2) * BLOCKS_AROUND_EXPERTS
    return tuple(
        _message(
            "all_to_all.ep",
            dispatched_bytes(kind.moe, group),
            columns.micro_batches * count * passes,
            group.candidates.ep,
        )
        for kind, count in _layers(shape)
        if kind.moe is not None
    )


def _pipeline_messages(shape: RankShape, group: LayoutGroup) -> Iterator[Message]:
    """Hidden states received and their gradients, once a micro-batch at each cut."""
    times = group.columns.micro_batches * group.pipeline.receives(shape.rank)
    yield _message("send_recv.pp", boundary_bytes(group), times, group.columns.pp)


def _sharding_messages(shape: RankShape, group: LayoutGroup) -> Iterator[Message]:
    """Gathers of parameters and scatters of gradients: layer by layer, and the root unit's."""
    columns = group.columns
    micro_batches, ranks = columns.micro_batches, columns.state_shard
    gathered_once = columns.keeps_gradients & ~columns.frees_after_forward & (columns.pp > 1)
    forward = np.where(gathered_once, 1, micro_batches) * columns.shards_parameters
    backward = micro_batches * columns.frees_after_forward * columns.shards_parameters
    scatters = np.where(columns.keeps_gradients, 1, micro_batches) * columns.shards_parameters
    root = on_rank(ends_parameters(shape, group.model), columns.tp)
    units = [
        (on_rank(layer_parameters(kind, group.model), columns.tp), count, backward)
        for kind, count in _layers(shape)
    ]
    for parameters, count, again in (*units, (root, 1, np.zeros_like(backward))):
        gathered = gathered_parameters_bytes(parameters, group)
        reduced = gradients_bytes(parameters, group)
        yield _message("all_gather.dp_shard", gathered, count * (forward + again), ranks)
        yield _message("reduce_scatter.dp_shard", reduced, count * scatters, ranks)


def _replication_messages(shape: RankShape, group: LayoutGroup) -> Iterator[Message]:
    """Gradients over replicas once a step; ZeRO-1 sums over all ranks and sends its update."""
    columns = group.columns
    parameters = on_rank(rank_parameters(shape, group.model), columns.tp)
    held = parameters / np.where(columns.shards_parameters, columns.state_shard, 1)
    is_zero1 = (columns.shards_optimizer & ~columns.shards_parameters).astype(np.int64)
    everyone = columns.replicas * columns.state_shard
    gradients = gradients_bytes(held, group)
    update = updated_parameters_bytes(parameters, group)
    yield _message("all_reduce.dp_replicate", gradients, 1 - is_zero1, columns.replicas)
    yield _message("all_reduce.dp_shard", gradients, is_zero1, everyone)
    yield _message("broadcast.dp_shard", update, is_zero1, columns.state_shard)


def _layers(shape: RankShape) -> list[tuple[LayerSpec, int]]:
    return [pair for chunk in shape.chunks for pair in chunk.layers]


def _message(term: str, size_bytes: FloatArray, times: IntArray, ranks: IntArray) -> Message:
    collective, _, axis = term.partition(".")
    return Message(
        collective=collective,  # type: ignore[arg-type]
        axis=axis,
        size_bytes=np.asarray(size_bytes, dtype=np.float64),
        times=np.asarray(times, dtype=np.float64),
        ranks=ranks,
    )
