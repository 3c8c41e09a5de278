"""Blocks against their own definitions, and against each other where one is a case of another."""

from dataclasses import replace

import pytest

from meshfit.workload.blocks.attention import AttentionSpec, BlockSelectionSpec
from meshfit.workload.blocks.block import Cache
from meshfit.workload.blocks.compressed import CompressedAttentionSpec, CompressionSpec
from meshfit.workload.blocks.feed_forward import MlpSpec, MoeSpec
from meshfit.workload.blocks.latent import IndexerSpec, LatentAttentionSpec
from meshfit.workload.blocks.linear import GatedDeltaNetSpec
from meshfit.workload.blocks.state_space import Mamba2Spec, MambaSpec
from meshfit.workload.blocks.tensor import linear

ATTENTION = AttentionSpec(num_attention_heads=8, num_key_value_heads=2, head_dim=16)
LATENT = LatentAttentionSpec(
    num_attention_heads=8,
    q_lora_rank=24,
    kv_lora_rank=16,
    qk_nope_head_dim=12,
    qk_rope_head_dim=4,
    v_head_dim=10,
)
INDEXER = IndexerSpec(num_heads=2, head_dim=8, top_k=5)


def elements(block, hidden_size=64):
    return sum(tensor.elements for tensor in block.tensors(hidden_size))


def names(block):
    return {tensor.name for tensor in block.tensors(64)}


class TestAttention:
    def test_a_gate_doubles_the_queries_and_nothing_else(self):
        gated = replace(ATTENTION, output_gate="with_queries")
        assert elements(gated) - elements(ATTENTION) == 64 * 8 * 16
        assert gated.token_mixing_flops(10) == ATTENTION.token_mixing_flops(10)

    def test_values_from_keys_save_a_projection_but_no_cache(self):
        shared = replace(ATTENTION, values_from_keys=True)
        assert elements(ATTENTION) - elements(shared) == 64 * 2 * 16
        assert shared.caches == ATTENTION.caches

    def test_a_layer_that_shares_its_cache_has_no_keys_values_or_cache(self):
        sharing = replace(ATTENTION, shares_cache=True, qk_norm=True)
        assert names(sharing) == {"q_proj.weight", "o_proj.weight", "q_norm.weight"}
        assert sharing.caches == ()

    def test_values_may_be_narrower_than_keys(self):
        narrow = replace(ATTENTION, value_head_dim=8)
        assert narrow.caches[0].elements == 2 * (16 + 8)
        assert elements(ATTENTION) - elements(narrow) == 64 * 8 * 2 + 64 * 8 * 8

    def test_a_norm_over_all_heads_is_as_wide_as_the_projection(self):
        per_head = replace(ATTENTION, qk_norm=True)
        over_all = replace(per_head, qk_norm_over="all_heads")
        assert elements(per_head) - elements(ATTENTION) == 2 * 16
        assert elements(over_all) - elements(ATTENTION) == (8 + 2) * 16

    def test_chosen_blocks_bound_what_is_seen_and_the_indexer_sees_it_all(self):
        selection = BlockSelectionSpec(num_heads=2, head_dim=4, block_size=4, num_blocks=2)
        sparse = replace(ATTENTION, selection=selection)
        windowed = replace(ATTENTION, sliding_window=8)
        indexer = 2 * 2 * 4 * 100 * 101 // 2
        assert sparse.token_mixing_flops(100) == windowed.token_mixing_flops(100) + indexer
        assert [cache.kind for cache in sparse.caches] == ["attention", "indexer"]


class TestLatentAttention:
    def test_the_cache_is_latent_and_rotated_key_whatever_the_heads(self):
        assert LATENT.caches == (Cache(kind="attention", elements=16 + 4),)
        assert replace(LATENT, num_attention_heads=64).caches == LATENT.caches

    def test_flops_are_those_of_attention_with_heads_expanded(self):
        expanded = AttentionSpec(
            num_attention_heads=8, num_key_value_heads=8, head_dim=16, value_head_dim=10
        )
        assert LATENT.token_mixing_flops(50) == expanded.token_mixing_flops(50)

    def test_a_layer_that_reuses_a_choice_has_no_indexer_but_sees_as_little(self):
        own = replace(LATENT, indexer=INDEXER)
        reusing = replace(own, shares_selection=True)
        scores = 2 * 2 * 8 * 50 * 51 // 2
        assert own.token_mixing_flops(50) - reusing.token_mixing_flops(50) == scores
        assert reusing.token_mixing_flops(50) < LATENT.token_mixing_flops(50)
        assert elements(reusing) == elements(LATENT) < elements(own)
        assert len(own.caches) == 2
        assert len(reusing.caches) == 1


class TestCompressedAttention:
    windowed = CompressedAttentionSpec(
        num_attention_heads=4,
        head_dim=8,
        q_lora_rank=12,
        output_groups=2,
        output_rank=6,
        sliding_window=16,
    )

    def test_entries_come_on_top_of_the_window(self):
        heavy = replace(self.windowed, compression=CompressionSpec(stride=10))
        extra = heavy.token_mixing_flops(100) - self.windowed.token_mixing_flops(100)
        closed = sum((query + 1) // 10 for query in range(100))
        assert extra == 4 * 4 * 8 * closed
        assert heavy.caches[1].bytes_of(100) == 8 * 2 * 10

    def test_the_window_bounds_its_cache(self):
        assert self.windowed.caches[0].bytes_of(10**6) == 8 * 2 * 16

    def test_an_indexer_bounds_the_entries_seen(self):
        compression = CompressionSpec(stride=4, indexer=INDEXER)
        sparse = replace(self.windowed, compression=compression)
        everything = replace(self.windowed, compression=CompressionSpec(stride=4))
        scores = 2 * 2 * 8 * sum((query + 1) // 4 for query in range(400))
        assert sparse.token_mixing_flops(400) - scores < everything.token_mixing_flops(400)
        assert [cache.kind for cache in sparse.caches] == ["attention", "attention", "indexer"]


class TestStates:
    """What recurrent layers keep does not grow, and their FLOPs grow with tokens alone."""

    blocks = (
        MambaSpec(inner_size=128, state_size=16, conv_kernel=4, time_step_rank=4),
        Mamba2Spec(num_heads=8, head_dim=16, state_size=32, num_groups=2, conv_kernel=4),
        GatedDeltaNetSpec(
            num_key_heads=2, num_value_heads=4, key_head_dim=8, value_head_dim=16, conv_kernel=4
        ),
    )

    @pytest.mark.parametrize("block", blocks, ids=lambda block: type(block).__name__)
    def test_flops_are_linear_and_no_token_is_cached(self, block):
        assert block.token_mixing_flops(300) == 300 * block.token_mixing_flops(1) > 0
        assert block.caches == ()
        assert block.formula

    def test_state_bytes(self):
        mamba, mamba2, delta = self.blocks
        assert mamba.state_bytes == 2 * (128 * 16 + 128 * 3)
        assert mamba2.state_bytes == 2 * (8 * 16 * 32 + (128 + 2 * 2 * 32) * 3)
        assert delta.state_bytes == 4 * (4 * 8 * 16) + 2 * (2 * 16 + 64) * 3


class TestExperts:
    moe = MoeSpec(
        num_experts=8, experts_per_token=2, expert=MlpSpec(intermediate_size=10, gated=True)
    )

    def test_a_token_uses_the_chosen_experts_and_the_router(self):
        tensors = self.moe.tensors(64)
        used = sum(tensor.elements_used for tensor in tensors)
        assert elements(self.moe) == 8 * 64 + 8 * 3 * 64 * 10
        assert used == 8 * 64 + 2 * 3 * 64 * 10
        assert sum(tensor.matmul_elements for tensor in tensors) == used

    def test_shared_experts_and_a_dense_mlp_are_used_by_every_token(self):
        mlp = MlpSpec(intermediate_size=20, gated=True)
        more = replace(self.moe, shared=mlp, shared_gate=True, dense=mlp)
        added = 2 * 3 * 64 * 20 + 64
        assert elements(more) - elements(self.moe) == added
        used = [sum(t.elements_used for t in block.tensors(64)) for block in (more, self.moe)]
        assert used[0] - used[1] == added

    def test_experts_behind_a_projection_are_as_wide_as_it(self):
        narrow = replace(self.moe, expert_input_size=16)
        assert elements(narrow) == 8 * 64 + 8 * 3 * 16 * 10 + 2 * 64 * 16


def test_a_row_split_leaves_its_bias_whole():
    weight, bias = linear("o", 4, 8, bias=True, split="row")
    assert (weight.split, bias.split) == ("row", None)
    weight, bias = linear("q", 4, 8, bias=True, split="column")
    assert (weight.split, bias.split) == ("column", "column")
