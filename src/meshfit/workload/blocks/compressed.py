"""Attention over compressed keys beside a sliding window (DeepSeek V4)."""

from dataclasses import dataclass

from meshfit.workload.blocks.block import Block, Cache
from meshfit.workload.blocks.latent import IndexerSpec
from meshfit.workload.blocks.tensor import Tensor, linear, norm, vector
from meshfit.workload.blocks.visibility import entries_seen, keys_seen


@dataclass(frozen=True, kw_only=True)
class CompressionSpec:
    """Every ``stride`` tokens leave one entry.

    With an indexer windows overlap, so that the compressor is twice as wide, and a query sees
    ``indexer.top_k`` entries at most; without, it sees them all.
    """

    stride: int
    indexer: IndexerSpec | None = None

    def tensors(self, hidden_size: int, q_lora_rank: int, head_dim: int) -> tuple[Tensor, ...]:
        if self.indexer is None:
            return _compressor(hidden_size, head_dim, self.stride, series=1)
        own = (
            *_compressor(hidden_size, self.indexer.head_dim, self.stride, series=2),
            *linear("q_b_proj", q_lora_rank, self.indexer.num_heads * self.indexer.head_dim),
            *linear("scorer.weights_proj", hidden_size, self.indexer.num_heads),
        )
        return (
            *_compressor(hidden_size, head_dim, self.stride, series=2),
            *(tensor.below("indexer") for tensor in own),
        )


def _compressor(hidden_size: int, width: int, stride: int, *, series: int) -> tuple[Tensor, ...]:
    return (
        vector("position_bias", stride * series * width),
        *linear("kv_proj", hidden_size, series * width),
        *linear("gate_proj", hidden_size, series * width),
        *norm("kv_norm", width),
    )


@dataclass(frozen=True, kw_only=True)
class CompressedAttentionSpec(Block):
    """One key/value head that is both key and value, a sliding window and compressed entries.

    Attributes:
        output_groups, output_rank: heads are projected in groups to ``output_rank`` each, and
            these together to the hidden dim.
        compression: None in layers that see their window only.
    """

    num_attention_heads: int
    head_dim: int
    q_lora_rank: int
    output_groups: int
    output_rank: int
    sliding_window: int
    compression: CompressionSpec | None = None

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        width = self.num_attention_heads * self.head_dim
        low = self.output_groups * self.output_rank
        return (
            vector("sinks", self.num_attention_heads),
            *linear("q_a_proj", hidden_size, self.q_lora_rank),
            *norm("q_a_norm", self.q_lora_rank),
            *linear("q_b_proj", self.q_lora_rank, width),
            *linear("kv_proj", hidden_size, self.head_dim),
            *norm("kv_norm", self.head_dim),
            *linear("o_a_proj", width // self.output_groups, low),
            *linear("o_b_proj", low, hidden_size),
            *self._compressor_tensors(hidden_size),
        )

    def _compressor_tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        if self.compression is None:
            return ()
        own = self.compression.tensors(hidden_size, self.q_lora_rank, self.head_dim)
        return tuple(tensor.below("compressor") for tensor in own)

    def token_mixing_flops(self, length: int, *, causal: bool = True) -> int:
        """4 x heads x head_dim x (keys of the window + compressed entries seen).

        The indexer scores every compressed entry: 2 x its heads x its head_dim x entries. The
        pooling of a window into an entry is left out.
        """
        seen = keys_seen(length, window=self.sliding_window, causal=causal)
        scores = 0
        if self.compression is not None:
            indexer, stride = self.compression.indexer, self.compression.stride
            most = indexer.top_k if indexer else None
            seen += entries_seen(length, stride, most=most, causal=causal)
            if indexer is not None:
                entries = entries_seen(length, stride, causal=causal)
                scores = 2 * indexer.num_heads * indexer.head_dim * entries
        return 4 * self.num_attention_heads * self.head_dim * seen + scores

    @property
    def caches(self) -> tuple[Cache, ...]:
        window = Cache(kind="attention", elements=self.head_dim, window=self.sliding_window)
        if self.compression is None:
            return (window,)
        stride, indexer = self.compression.stride, self.compression.indexer
        entries = Cache(kind="attention", elements=self.head_dim, stride=stride)
        if indexer is None:
            return (window, entries)
        return (window, entries, Cache(kind="indexer", elements=indexer.head_dim, stride=stride))

    @property
    def formula(self) -> str:
        return (
            "compressed attention: 4 x heads x head_dim x (keys of the window + compressed entries"
            " seen) + 2 x indexer heads x indexer head_dim x entries"
        )
