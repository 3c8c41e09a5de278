"""Multi-head latent attention (DeepSeek V2, arXiv 2405.04434) and its sparse form."""

from dataclasses import dataclass

from meshfit.workload.blocks.block import Block, Cache
from meshfit.workload.blocks.tensor import Tensor, linear, norm
from meshfit.workload.blocks.visibility import keys_seen


@dataclass(frozen=True, kw_only=True)
class IndexerSpec:
    """The lightning indexer of DeepSeek sparse attention (V3.2, GLM-5).

    It scores every key with ``num_heads`` small heads; a query then attends to ``top_k`` keys.
    """

    num_heads: int
    head_dim: int
    top_k: int

    def tensors(self, hidden_size: int, q_lora_rank: int) -> tuple[Tensor, ...]:
        return (
            *linear("wq_b", q_lora_rank, self.num_heads * self.head_dim),
            *linear("wk", hidden_size, self.head_dim),
            *norm("k_norm", self.head_dim, vectors=2),
            *linear("weights_proj", hidden_size, self.num_heads),
        )


@dataclass(frozen=True, kw_only=True)
class LatentAttentionSpec(Block):
    """Queries, keys and values from low-rank latents; the cache holds the latent.

    Attributes:
        q_lora_rank: rank of the queries' latent; None: q is one full projection.
        kv_lora_rank: width of the latent that keys and values come from.
        qk_nope_head_dim, qk_rope_head_dim: width of a head's part without and with rotation; the
            rotated key is one for all heads.
        head_gate: a gate a head on the output, from a projection of its own (Ling 2.5).
        bias: on the projections into the latents and out of the heads.
        indexer: of sparse attention; None: a query sees every key before it.
        shares_selection: reuses the keys that an earlier layer's indexer chose.
    """

    num_attention_heads: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None = None
    bias: bool = False
    head_gate: bool = False
    indexer: IndexerSpec | None = None
    shares_selection: bool = False

    @property
    def qk_head_dim(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def _has_own_indexer(self) -> bool:
        return self.indexer is not None and not self.shares_selection

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Tensor parallelism cuts what expands into heads; each rank holds the latents whole."""
        heads, rank = self.num_attention_heads, self.kv_lora_rank
        expanded = heads * (self.qk_nope_head_dim + self.v_head_dim)
        return (
            *self._query_tensors(hidden_size),
            *linear(
                "kv_a_proj_with_mqa", hidden_size, rank + self.qk_rope_head_dim, bias=self.bias
            ),
            *norm("kv_a_layernorm", rank),
            *linear("kv_b_proj", rank, expanded, split="column"),
            *linear("o_proj", heads * self.v_head_dim, hidden_size, bias=self.bias, split="row"),
            *(linear("g_proj", hidden_size, heads, split="column") if self.head_gate else ()),
            *self._indexer_tensors(hidden_size),
        )

    def _query_tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        queries = self.num_attention_heads * self.qk_head_dim
        if self.q_lora_rank is None:
            return linear("q_proj", hidden_size, queries, split="column")
        return (
            *linear("q_a_proj", hidden_size, self.q_lora_rank, bias=self.bias),
            *norm("q_a_layernorm", self.q_lora_rank),
            *linear("q_b_proj", self.q_lora_rank, queries, split="column"),
        )

    def _indexer_tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        if self.indexer is None or self.shares_selection:
            return ()
        assert self.q_lora_rank is not None
        own = self.indexer.tensors(hidden_size, self.q_lora_rank)
        return tuple(tensor.below("indexer") for tensor in own)

    def token_mixing_flops(self, length: int, *, causal: bool = True) -> int:
        """Heads expanded, as in training and prefill: 2 x heads x (qk + v head dims) x keys seen.

        With an indexer a query sees ``top_k`` keys at most, and the indexer scores all of them:
        2 x its heads x its head_dim x keys before it.
        """
        window = self.indexer.top_k if self.indexer else None
        seen = keys_seen(length, window=window, causal=causal)
        flops = 2 * self.num_attention_heads * (self.qk_head_dim + self.v_head_dim) * seen
        if self.indexer is not None and self._has_own_indexer:
            scored = keys_seen(length, causal=causal)
            flops += 2 * self.indexer.num_heads * self.indexer.head_dim * scored
        return flops

    @property
    def caches(self) -> tuple[Cache, ...]:
        latent = Cache(kind="attention", elements=self.kv_lora_rank + self.qk_rope_head_dim)
        if self.indexer is None or self.shares_selection:
            return (latent,)
        return (latent, Cache(kind="indexer", elements=self.indexer.head_dim))

    @property
    def formula(self) -> str:
        seen = "keys seen" if self.indexer is None else "keys the indexer chose"
        scores = (
            " + 2 x indexer heads x indexer head_dim x keys before it"
            if self._has_own_indexer
            else ""
        )
        return (
            "latent attention with heads expanded: 2 x heads x (qk_nope + qk_rope + v head dim)"
            f" x {seen}{scores}"
        )
