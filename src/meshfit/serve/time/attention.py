"""Attention and recurrences of one pipeline stage: what a step computes and reads of the past."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from meshfit.serve.memory.shards import LayerShards
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.block import ELEMENT_BYTES, Block, Cache
from meshfit.workload.blocks.compressed import CompressedAttentionSpec
from meshfit.workload.blocks.latent import LatentAttentionSpec

FloatArray = NDArray[np.float64]

LENGTHS = 2.0 ** np.arange(4, 21)
"""Where the FLOPs of a prompt's token are looked up between: 16 to a million tokens before it."""


@dataclass(frozen=True, kw_only=True)
class Mixer:
    """Equal blocks that mix tokens, on one of ``tp`` ranks.

    ``cache_bytes``: of one element of the KV cache.
    """

    block: Block
    count: int
    tp: int
    cache_bytes: float

    @property
    def is_recurrent(self) -> bool:
        """Whether it keeps a state instead of a cache."""
        return not self.block.caches and self.block.state_bytes > 0

    @property
    def num_heads(self) -> float:
        heads = getattr(self.block, "num_attention_heads", None)
        return max(1.0, (heads or 1) / self.tp)

    @property
    def head_dim(self) -> int:
        """Of a head whose keys are expanded, as in a prompt."""
        dim = getattr(self.block, "head_dim", None) or getattr(self.block, "qk_head_dim", None)
        return int(dim or 128)

    @cached_property
    def _flops_per_token(self) -> FloatArray:
        of_documents = [self.block.token_mixing_flops(int(length)) for length in LENGTHS]
        return np.array(of_documents, dtype=np.float64) / LENGTHS / self.tp

    def prefill_flops(self, tokens: FloatArray, length: FloatArray) -> FloatArray:
        """FLOPs of prompt tokens that see as many keys on average as those of one causal document of
        ``length``."""
        at = np.log2(np.maximum(length, LENGTHS[0]))
        each = np.exp2(np.interp(at, np.log2(LENGTHS), np.log2(self._flops_per_token + 1e-9)))
        return np.asarray(tokens * each)

    def read_bytes(self, requests: FloatArray, context: FloatArray) -> FloatArray:
        """Of cache and state that one token of each request reads (a state is written, too).

        Args:
            context: tokens behind each request, on average.
        """
        held = sum(
            (
                cache.bytes_per_token(self.tp)
                * self.cache_bytes
                / ELEMENT_BYTES
                * _tokens_read(self.block, cache, context)
                for cache in self.block.caches
            ),
            start=np.zeros(np.shape(context)),
        )
        return np.asarray(requests * (held + 2 * self.block.state_bytes / self.tp))

    def decode_flops(self, requests: FloatArray, context: FloatArray) -> FloatArray:
        """FLOPs of one token of each request.

        Latent attention scores and sums the latent itself (absorbed): 2 x heads x (2 kv_lora_rank
        + rope dim) a token that is read.
        """
        if isinstance(self.block, LatentAttentionSpec):
            rank, rope = self.block.kv_lora_rank, self.block.qk_rope_head_dim
            read = _tokens_read(self.block, self.block.caches[0], context)
            return np.asarray(requests * 2 * self.num_heads * (2 * rank + rope) * read)
        if isinstance(self.block, AttentionSpec):
            widths = self.block.head_dim + self.block.value_dim
            read = (
                _tokens_read(self.block, self.block.caches[0], context)
                if self.block.caches
                else context
            )
            return np.asarray(requests * 2 * self.num_heads * widths * read)
        return self.prefill_flops(requests, context)


def _tokens_read(block: Block, cache: Cache, context: FloatArray) -> FloatArray:
    """Tokens of a cache that one query reads: of its window, or chosen by an indexer."""
    most = cache.window
    if cache.kind == "attention":
        if isinstance(block, LatentAttentionSpec) and block.indexer is not None:
            most = block.indexer.top_k
        elif isinstance(block, AttentionSpec) and block.selection is not None:
            most = block.selection.num_blocks * block.selection.block_size
        elif isinstance(block, CompressedAttentionSpec) and cache.stride > 1:
            indexer = block.compression.indexer if block.compression else None
            most = indexer.top_k * cache.stride if indexer else None
    return np.asarray(context if most is None else np.minimum(context, most))


def mixers(groups: Sequence[LayerShards], tp: int, cache_bytes: float) -> tuple[Mixer, ...]:
    """The blocks of a stage's layers that read or keep the past, equal ones together."""
    found: Counter[Block] = Counter()
    for group in groups:
        for _, block in group.layer.blocks:
            if block.mixes_tokens:
                found[block] += group.count
    return tuple(
        Mixer(block=block, count=count, tp=tp, cache_bytes=cache_bytes)
        for block, count in found.items()
    )
