"""Messages of context parallelism: keys and values, or heads."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import RECOMPUTE
from meshfit.predict.shape.context import context_method
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.layer_basis import FP32_BYTES
from meshfit.predict.shape.schedule import RankShape
from meshfit.predict.time.messages.message import Message, PassCounts, Size, message
from meshfit.predict.time.recompute import recomputed_share
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.model import LayerSpec

FloatArray = NDArray[np.float64]


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


def context_messages(shape: RankShape, group: LayoutGroup) -> Iterator[Message]:
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
            yield message(name, "cp", what, size, times=times, ranks=ranks)
