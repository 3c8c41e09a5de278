"""Softmax attention with keys and values per head."""

from dataclasses import dataclass
from typing import Literal

from meshfit.workload.blocks.block import Block, Cache
from meshfit.workload.blocks.tensor import Tensor, linear, norm, vector
from meshfit.workload.blocks.visibility import keys_seen, keys_seen_in_chunks

OutputGate = Literal["with_queries", "head", "element"]
"""A gate on the output, one an element, from a second half of the q projection (Qwen3-Next); or from
a projection of its own, one a head (Laguna) or one an element (AFMoE)."""


@dataclass(frozen=True, kw_only=True)
class BlockSelectionSpec:
    """An indexer that picks the blocks of keys each query sees (MiniMax M3).

    Parameters: q for ``num_heads`` heads, one k, a norm over each head of both.
    """

    num_heads: int
    head_dim: int
    block_size: int
    num_blocks: int
    """Blocks a query sees at most, its own among them."""

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        return (
            *linear("q_proj", hidden_size, self.num_heads * self.head_dim),
            *linear("k_proj", hidden_size, self.head_dim),
            *norm("q_norm", self.head_dim),
            *norm("k_norm", self.head_dim),
        )


@dataclass(frozen=True, kw_only=True)
class AttentionSpec(Block):
    """One softmax attention: grouped-query, of which multi-head and multi-query are the ends."""

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    """A norm over q and over k."""
    qk_norm_over: Literal["head", "all_heads"] = "head"
    """``head``: one weight of ``head_dim`` each (Qwen3); ``all_heads``: of all heads (OLMo 2)."""
    qk_norm_vectors: int = 1
    """2 where that norm has a bias as well."""
    sliding_window: int | None = None
    """Tokens a query sees at most; None: all before it."""
    chunk_size: int | None = None
    """A query sees its own chunk of so many tokens only (Llama 4)."""
    value_head_dim: int | None = None
    """None: as ``head_dim``."""
    output_gate: OutputGate | None = None
    sinks: bool = False
    """One learned sink a head (gpt-oss)."""
    values_from_keys: bool = False
    """Values are the keys before their norm and rotation: no v projection (Gemma 4)."""
    shares_cache: bool = False
    """Keys and values are an earlier layer's: no k and v projection, no cache (Gemma 3n, 4)."""
    selection: BlockSelectionSpec | None = None

    @property
    def value_dim(self) -> int:
        return self.value_head_dim or self.head_dim

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """q, k, v and output projections, norms over q and k, sinks, indexer.

        Tensor parallelism cuts q, k, v (with their biases) by heads and the output by its input;
        the output's bias and the norms over q and k stay whole on every rank.
        """
        bias, heads = self.qkv_bias, self.num_attention_heads
        queries = heads * self.head_dim * (2 if self.output_gate == "with_queries" else 1)
        return (
            *linear("q_proj", hidden_size, queries, bias=bias, split="column"),
            *self._key_value_tensors(hidden_size),
            *linear(
                "o_proj", heads * self.value_dim, hidden_size, bias=self.output_bias, split="row"
            ),
            *self._gate_tensors(hidden_size),
            *self._norm_tensors(),
            *((vector("sinks", heads, split="column"),) if self.sinks else ()),
            *(
                tensor.below("indexer")
                for tensor in (self.selection.tensors(hidden_size) if self.selection else ())
            ),
        )

    def _key_value_tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        if self.shares_cache:
            return ()
        kv_heads, bias = self.num_key_value_heads, self.qkv_bias
        keys = linear("k_proj", hidden_size, kv_heads * self.head_dim, bias=bias, split="column")
        if self.values_from_keys:
            return keys
        values = linear("v_proj", hidden_size, kv_heads * self.value_dim, bias=bias, split="column")
        return keys + values

    def _gate_tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        if self.output_gate is None or self.output_gate == "with_queries":
            return ()
        per_head = self.value_dim if self.output_gate == "element" else 1
        gates = self.num_attention_heads * per_head
        return linear("gate_proj", hidden_size, gates, split="column")

    def _norm_tensors(self) -> tuple[Tensor, ...]:
        if not self.qk_norm:
            return ()
        over_all = self.qk_norm_over == "all_heads"
        queries = self.head_dim * (self.num_attention_heads if over_all else 1)
        keys = self.head_dim * (self.num_key_value_heads if over_all else 1)
        over_keys = () if self.shares_cache else norm("k_norm", keys, vectors=self.qk_norm_vectors)
        return norm("q_norm", queries, vectors=self.qk_norm_vectors) + over_keys

    def token_mixing_flops(self, length: int, *, causal: bool = True) -> int:
        """Scores and weighted sum: 2 x heads x (head_dim + value dim) x keys seen.

        Two matmuls of 2 FLOPs a multiply-add; softmax is left out. An indexer scores every key:
        2 x its heads x its head_dim x keys seen.
        """
        widths = self.num_attention_heads * (self.head_dim + self.value_dim)
        flops = 2 * widths * self._keys_seen(length, causal=causal)
        if self.selection is not None:
            index_width = self.selection.num_heads * self.selection.head_dim
            flops += 2 * index_width * keys_seen(length, causal=causal)
        return flops

    def _keys_seen(self, length: int, *, causal: bool) -> int:
        if self.chunk_size is not None:
            return keys_seen_in_chunks(length, self.chunk_size, causal=causal)
        window = self.sliding_window
        if self.selection is not None:
            window = self.selection.num_blocks * self.selection.block_size
        return keys_seen(length, window=window, causal=causal)

    @property
    def caches(self) -> tuple[Cache, ...]:
        if self.shares_cache:
            return ()
        elements = self.num_key_value_heads * (self.head_dim + self.value_dim)
        window = self.sliding_window or self.chunk_size
        own = Cache(
            kind="attention", elements=elements, heads=self.num_key_value_heads, window=window
        )
        if self.selection is None:
            return (own,)
        return (own, Cache(kind="indexer", elements=self.selection.head_dim))

    @property
    def formula(self) -> str:
        if self.selection is not None:
            return (
                "block-sparse attention: 2 x heads x (head_dim + value dim) x keys of chosen blocks"
                " + 2 x indexer heads x indexer head_dim x keys before it"
            )
        return (
            "softmax attention: 2 x heads x (head_dim + value dim) x keys seen; causal, a token"
            " sees itself and what is before it, (s + 1) / 2 keys on average, and never more than"
            " a sliding window or its chunk"
        )


@dataclass(frozen=True, kw_only=True)
class CrossAttentionSpec(Block):
    """Attention of a decoder's tokens over the encoder's, as many of these as of those."""

    num_attention_heads: int
    head_dim: int

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        width = self.num_attention_heads * self.head_dim
        return (
            *(
                tensor
                for name in ("q_proj", "k_proj", "v_proj")
                for tensor in linear(name, hidden_size, width, split="column")
            ),
            *linear("o_proj", width, hidden_size, split="row"),
        )

    def token_mixing_flops(self, length: int, *, causal: bool = True) -> int:
        """Every query sees every one of ``length`` source tokens: 4 x heads x head_dim x length."""
        return 4 * self.num_attention_heads * self.head_dim * length * length

    @property
    def caches(self) -> tuple[Cache, ...]:
        elements = 2 * self.num_attention_heads * self.head_dim
        heads = self.num_attention_heads
        return (Cache(kind="cross_attention", elements=elements, heads=heads),)

    @property
    def formula(self) -> str:
        return "cross-attention: 4 x heads x head_dim x source tokens, as many as target tokens"
