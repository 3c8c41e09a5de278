"""Messages of latent attention whose latents tensor-parallel ranks gather, not hidden states."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedule import RankShape
from meshfit.predict.time.messages.message import Message, PassCounts, Size, message
from meshfit.predict.time.messages.tensor import block_gathers, is_sequence_parallel
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.model import LayerSpec

FloatArray = NDArray[np.float64]


def gathered_latents(kind: LayerSpec, group: LayoutGroup) -> LatentAttentionSpec | None:
    """A layer's latent attention, where the engine gathers latents."""
    return kind.find(LatentAttentionSpec) if group.profile.gathers_latents else None


def latent_width(block: LatentAttentionSpec) -> int:
    """Elements a token: the latents, and the rotated part of a key that all heads share."""
    return (block.q_lora_rank or 0) + block.kv_lora_rank + block.qk_rope_head_dim


def latents(block: LatentAttentionSpec, group: LayoutGroup) -> Size:
    """Of one micro-batch, of all tensor-parallel ranks."""
    width, element = float(latent_width(block)), group.numerics.compute_bytes
    return Size(((group.columns.tokens, "tokens"), (width, ""), (element, "B")))


def latent_passes(group: LayoutGroup) -> PassCounts:
    """Gathers of them under sequence parallelism. Their gradients are summed in each backward."""
    gathers = block_gathers(np.ones(len(group)), group)
    return PassCounts(forward=gathers.forward, backward=0.0, again=gathers.again)


def projection_gradients(block: LatentAttentionSpec, group: LayoutGroup) -> Size:
    """Of what makes latents: whole on every rank, each finds a summand, that of its own tokens."""
    columns = group.columns
    weights = float(latent_width(block)) * group.model.hidden_size
    element = np.where(
        columns.through_fsdp,
        group.numerics.compute_bytes,
        group.training.precision.gradient_bytes,
    )
    return Size(((weights, "parameters"), (element, "B")))


def projection_sums(group: LayoutGroup) -> FloatArray:
    """How often a step sums them: where FSDP2 reduces gradients after every micro-batch, each time;
    never where they are frozen (and of adapters' narrow factors it is left out)."""
    columns = group.columns
    often = columns.through_fsdp & ~columns.keeps_gradients
    sums = np.where(often, columns.micro_batches, 1.0)
    is_summed = is_sequence_parallel(group) & (group.training.adapter is None)
    return np.where(is_summed, sums, 0.0)


def latent_messages(shape: RankShape, group: LayoutGroup) -> Iterator[Message]:
    """Latents before they are expanded into heads, their gradients, and those of what made them."""
    columns, passes = group.columns, latent_passes(group)
    if bool(np.all(columns.tp <= 1)):
        return
    in_shards = is_sequence_parallel(group).astype(np.float64)
    for kind, count in shape.layers:
        block = gathered_latents(kind, group)
        if block is None:
            continue
        each, size = count * columns.micro_batches, latents(block, group)
        for collective, what, times in (
            ("all_gather", "latents of attention", passes.total * in_shards),
            ("reduce_scatter", "gradients of latents", in_shards),
            ("all_reduce", "gradients of latents", 1.0 - in_shards),
        ):
            yield message(collective, "tp", what, size, times=each * times, ranks=columns.tp)
        what, sums = "gradients of what makes latents", count * projection_sums(group)
        gradients = projection_gradients(block, group)
        yield message("all_reduce", "tp", what, gradients, times=sums, ranks=columns.tp)
