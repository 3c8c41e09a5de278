"""Messages of tensor parallelism, with and without sequence parallelism."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import RECOMPUTE
from meshfit.predict.memory.logits import loss_kind
from meshfit.predict.shape.cut import is_cut
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedule import RankShape
from meshfit.predict.time.messages.message import Message, PassCounts, Size, message
from meshfit.predict.time.recompute import recomputed_share
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.model import LayerSpec, MoeSpec

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


LOSS_SUMS = {"plain": 3, "chunked": 3, "fused": 2}
"""Sums over ranks of a loss whose vocabulary is divided, each a number a token in fp32: the largest
logit, the target's, and the sum of exponentials; a fused loss sends the last two together
(Megatron-Core, ``core/tensor_parallel/cross_entropy.py`` and ``core/fusions``)."""
LOSS_SUM_BYTES = 4


def hidden(group: LayoutGroup, element_bytes: int) -> Size:
    tokens, width = group.columns.tokens, float(group.model.hidden_size)
    return Size(((tokens, "tokens"), (width, ""), (element_bytes, "B")))


def summed_hidden(group: LayoutGroup) -> Size:
    """Hidden states of one micro-batch as matmuls make them: partial sums of all ranks."""
    return hidden(group, group.numerics.compute_bytes)


def gathered_hidden(group: LayoutGroup) -> Size:
    """Hidden states as tensor-parallel matmuls gather them: in fp8 where one scale serves all of a
    tensor, so that they can be cast before they are sent."""
    in_fp8 = group.training.precision.matmul == "fp8"
    before = in_fp8 and group.training.runtime.fp8_recipe not in ("rowwise", "blockwise", "mxfp8")
    return hidden(group, 1 if before else group.numerics.residual_bytes)


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


def hidden_inputs(exchanges: FloatArray, kind: LayerSpec, group: LayoutGroup) -> FloatArray:
    """Of these exchanges, those in front of which hidden states are exchanged: not of attention whose
    latents are, all of its queries, keys and values (``messages.latent``)."""
    latent = kind.find(LatentAttentionSpec) if group.profile.gathers_latents else None
    return exchanges - (latent is not None and latent.q_lora_rank is not None)


def block_sums(
    exchanges: FloatArray, group: LayoutGroup, inputs: FloatArray | None = None
) -> PassCounts:
    """Sums after blocks forward, and of the gradients of their inputs backward (``inputs`` of them,
    where these are fewer). Where recomputation stops once it has what backward needs, the last block's
    sum is not made again."""
    needless = 1.0 if group.profile.recomputes_what_is_needed else 0.0
    again = recomputed_share(group) * np.maximum(exchanges - needless, 0.0)
    backward = exchanges if inputs is None else inputs
    return PassCounts(forward=exchanges, backward=backward, again=again)


def block_gathers(
    exchanges: FloatArray, group: LayoutGroup, inputs: FloatArray | None = None
) -> PassCounts:
    """Gathers of the sequence before blocks forward (``inputs`` of them, where these are fewer), and of
    the gradients of their outputs backward. PyTorch's recomputation by operation keeps sums and makes gathers again (torchtitan,
    ``distributed/activation_checkpoint.py``)."""
    by_operation = group.candidates.recompute == RECOMPUTE.index("operations")
    again = recomputed_share(group) + (by_operation & group.profile.saves_gathered_inputs)
    forward = exchanges if inputs is None else inputs
    return PassCounts(forward=forward, backward=exchanges, again=again * forward)


def input_gathers(exchanges: FloatArray | float, group: LayoutGroup) -> FloatArray:
    """Gathers of blocks' inputs once more, for the gradients of their weights: where the gathered
    ones are not kept (2205.05198, section 4.2.2; Megatron-Core, ``tensor_parallel/layers.py``)."""
    return np.asarray(exchanges * (0.0 if group.profile.saves_gathered_inputs else 1.0))


def loss_exchanges(group: LayoutGroup) -> int:
    """Sums over ranks that a loss over a divided vocabulary makes in one micro-batch."""
    if group.profile.gathers_logits:
        return 0
    return LOSS_SUMS[loss_kind(group)]


def tensor_messages(shape: RankShape, group: LayoutGroup) -> Iterator[Message]:
    """Around every block that is cut an all_reduce, or under sequence parallelism a gather and a
    scatter; half of one around embedding and head, and what the loss needs."""
    columns, is_sequence = group.columns, is_sequence_parallel(group)
    embedding, head = int(shape.chunks[0].has_embedding), int(shape.chunks[-1].has_head)
    sums: FloatArray = np.zeros(len(group)) + embedding + head
    gathers: FloatArray = np.zeros(len(group)) + embedding + head + input_gathers(head, group)
    for kind, count in shape.layers:
        exchanges = tensor_exchanges(kind, group)
        inputs = hidden_inputs(exchanges, kind, group)
        sums = sums + count * block_sums(exchanges, group, inputs).total
        again = input_gathers(inputs, group)
        gathers = gathers + count * (block_gathers(exchanges, group, inputs).total + again)
    m = columns.micro_batches
    for collective, size, times, what in (
        ("all_reduce", summed_hidden(group), np.where(is_sequence, 0, sums), "partial sums"),
        ("reduce_scatter", summed_hidden(group), np.where(is_sequence, sums, 0), "partial sums"),
        ("all_gather", gathered_hidden(group), np.where(is_sequence, gathers, 0), "the sequence"),
    ):
        around = f"{what} around each block that is cut, embedding and head"
        yield message(collective, "tp", around, size, times=m * times, ranks=columns.tp)
    if head and group.profile.gathers_logits:
        yield message("all_gather", "tp", "logits", logits(group), times=m, ranks=columns.tp)
    if head and loss_exchanges(group):
        times = m * loss_exchanges(group)
        yield message(
            "all_reduce", "tp", "sums of the loss", loss_sums(group), times=times, ranks=columns.tp
        )
