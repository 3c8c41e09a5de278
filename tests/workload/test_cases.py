"""Cases from public issues whose answer the inventory holds; ids, inputs and answers are theirs."""

from dataclasses import replace

import pytest

from meshfit.workload import counts
from meshfit.workload.families import read_family
from meshfit.workload.models import read_model
from meshfit.workload.optimizers import training_states
from meshfit.workload.quantization import (
    INT4_GROUP,
    everything_as,
    read_quantization,
    weight_bytes,
)

GIB = 2**30


def test_a12_sgd_in_bf16_keeps_4_bytes_a_parameter_and_in_fp32_8():
    """trl#3218: a 70B model over 8 GPUs with plain SGD."""
    states = training_states(read_model("llama-3.1-70b"))
    assert states["bf16"]["sgd"].total / 8 / GIB == pytest.approx(32.9, abs=0.05)
    assert states["fp32"]["sgd"].total / 8 / GIB == pytest.approx(65.7, abs=0.05)


def test_a14_weights_and_gradients_in_bf16_bound_the_paged_8_bit_adamw_from_below():
    """torchtune#987: Llama-2-70B over 8 A100; about 51 GB measured, its moments may be paged out."""
    state = training_states(read_model("llama-2-70b"))["bf16"]["adamw_8bit"]
    assert (state.parameters + state.gradients) / 8 / GIB == pytest.approx(32.1, abs=0.05)
    assert state.total / 8 < 51 * GIB
    assert state.optimizer == pytest.approx(state.parameters, rel=0.02)


def test_a10_adamw_in_mixed_precision_keeps_16_bytes_a_parameter():
    """llama-cookbook#234: Llama-2-7B over 8 V100."""
    state = training_states(read_model("llama-2-7b"))["bf16_mixed"]["adamw"]
    assert state.total / 8 / GIB == pytest.approx(12.55, abs=0.01)


def test_g11_a_stage_needs_the_cache_of_its_own_layers():
    """vllm#34076: 16 and 32 layers of Qwen3-30B-A3B, 262,144 tokens, 3.18 GiB free on the first."""
    model = read_model("qwen3-30b-a3b")
    per_token = counts.kv_cache_bytes_per_token(model)
    assert per_token == 98304
    assert 262144 * per_token / GIB == 24.0
    stages = [replace(model, layers=model.layers[:16]), replace(model, layers=model.layers[16:])]
    assert [counts.kv_cache_bytes(stage, 262144) / GIB for stage in stages] == [8.0, 16.0]
    free = 3.18 * GIB
    tokens = free / counts.kv_cache_bytes_per_token(stages[0])
    assert tokens == pytest.approx(104202, abs=5)
    assert free / per_token == pytest.approx(34736, abs=5)


def test_h02_a_long_context_needs_its_cache():
    """SubgraphRAG#19: Llama-3.1-8B at 131,072 tokens; 39,024 tokens fitted in 4.76 GiB."""
    model = read_model("llama-3.1-8b")
    assert counts.kv_cache_bytes_per_token(model) == 131072
    assert counts.kv_cache_bytes(model, 131072) / GIB == 16.0
    assert counts.kv_cache_bytes(model, 39024) / GIB == pytest.approx(4.76, abs=0.01)


def test_h06_the_cache_has_key_value_heads_not_the_hidden_size():
    """vllm#22291: Qwen2.5-7B; 1,605,632 came from the hidden size."""
    model = read_model("qwen2.5-7b")
    assert counts.kv_cache_bytes_per_token(model) == 57344


def test_h08_sliding_layers_stop_at_their_window_or_not_as_the_engine_has_it():
    """hf-mem#70: gpt-oss-20b, 32 requests of 8,192 tokens."""
    model = read_model("gpt-oss-20b")
    lower, upper = (
        32 * figure / GIB
        for figure in (
            counts.kv_cache_bytes(model, 8192),
            8192 * counts.kv_cache_bytes_per_token(model),
        )
    )
    assert lower == pytest.approx(6.09, abs=0.005)
    assert upper == 12.0


def test_h10_most_layers_of_gemma_3_stop_at_512_tokens():
    """mlxcel#172: gemma-3-1b, 26 layers of which 22 have a window, one key/value head of 256."""
    model = read_family(
        "gemma-3-1b",
        {"model_type": "gemma3_text", "num_hidden_layers": 26, "num_attention_heads": 4,
         "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512,
         "sliding_window_pattern": 6},
    )  # fmt: skip
    assert sum(layer.attention.sliding_window == 512 for layer in model.layers) == 22
    assert 32768 * counts.kv_cache_bytes_per_token(model) / 2**20 == 832
    assert counts.kv_cache_bytes(model, 32768) / 2**20 == 139


def test_h14_a_latent_is_stored_whole_on_every_rank():
    """vllm#51454: one latent for all heads, so tensor parallelism does not divide the cache."""
    for name in ("deepseek-v3", "deepseek-v4-flash", "glm-5"):
        model = read_model(name)
        per_token = counts.kv_cache_bytes_per_token(model)
        assert counts.kv_cache_bytes_per_token(model, tp=8) == per_token


@pytest.mark.parametrize(
    ("name", "weights_gib", "gpu_memory_gib"),
    [("llama-3.1-405b", 756, 80), ("deepseek-v3", 625, 2 * 131.3)],
)
def test_h18_weights_alone_exceed_the_memory(name, weights_gib, gpu_memory_gib):
    """aiconfigurator#509: Llama-405B in bf16 on one H100, DeepSeek-V3 in fp8 on two H200.

    The issue counts every parameter of DeepSeek-V3 as one byte; embeddings, head and norms keep 16
    bits, and blocks have scales, which is 0.3% more.
    """
    model = read_model(name)
    found = weight_bytes(model, read_quantization(model.config)).total / GIB
    assert found == pytest.approx(weights_gib, rel=0.004)
    assert found > gpu_memory_gib


def test_h20_a_4_bit_model_keeps_embeddings_and_head_in_16_bits():
    """vllm#13882: Qwen2.5-7B with AWQ: 5.20 GiB of weights."""
    model = read_model("qwen2.5-7b")
    stored = weight_bytes(model, everything_as(INT4_GROUP))
    assert stored.quantized_parameters == pytest.approx(6.53e9, rel=0.002)
    assert stored.total / GIB == pytest.approx(5.2, abs=0.02)


def test_h22_fewer_key_value_heads_than_ranks_are_replicated():
    """sglang#19086: 2 heads over 4 ranks leave one a rank, and memory stops shrinking."""
    model = read_family("two heads", {"model_type": "llama", "num_key_value_heads": 2})
    of_one_head = counts.kv_cache_bytes_per_token(model) // 2
    on_rank = [counts.kv_cache_bytes_per_token(model, tp) for tp in (1, 2, 4, 8)]
    assert on_rank == [2 * of_one_head, of_one_head, of_one_head, of_one_head]
