"""Counts against published tables and issues, and against their own definitions."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.errors import InputError
from meshfit.workload import counts
from meshfit.workload.blocks.visibility import keys_seen
from meshfit.workload.families import read_family
from meshfit.workload.inventory import inventory
from meshfit.workload.models import read_model
from meshfit.workload.parts import PARTS
from meshfit.workload.training import PRECISIONS

COUNTED = json.loads((Path(__file__).parent / "data" / "counted_models.json").read_text())
"""Configs with the parameters of the model that transformers builds from each."""

TERA = 1e12


def of_row(row):
    return read_family(row["id"], row["config"])


def seconds_of_inventory(row):
    start = time.perf_counter()
    inventory(of_row(row), 4096)
    return time.perf_counter() - start


READ = [row for row in COUNTED if row["id"] != "default--NemotronConfig"]
"""All but the one config that lacks what its own class needs."""


def by_id(rows):
    return pytest.mark.parametrize("row", rows, ids=[row["id"] for row in rows])


class TestCountedModels:
    @by_id([row for row in COUNTED if "total" in row])
    def test_total_and_every_part_are_exact(self, row):
        model = of_row(row)
        assert counts.total_parameters(model) == row["total"]
        assert counts.parameters_by_part(model) == dict.fromkeys(PARTS, 0) | row["by_part"]

    @by_id([row for row in COUNTED if row.get("active")])
    def test_active_parameters_are_exact(self, row):
        assert counts.active_parameters(of_row(row)) == row["active"]

    @by_id([row for row in COUNTED if "kv_bytes_per_token" in row])
    def test_kv_bytes_per_token_are_exact(self, row):
        assert counts.kv_cache_bytes_per_token(of_row(row)) == row["kv_bytes_per_token"]

    @by_id(READ)
    def test_an_inventory_takes_under_50_ms(self, row):
        assert min(seconds_of_inventory(row) for _ in range(5)) < 0.05

    def test_what_transformers_does_not_know_counts_as_what_its_code_derives_from(self):
        """MiMo is Qwen2, Kimi K2 is DeepSeek V3; M3 and DBRX as transformers builds them.

        MiniMax-M3 built from this config as ``minimax_m3_vl_text``, DBRX with the ``rope_theta``
        whose absence stops transformers 5.24: totals counted on the meta device.
        """
        totals = {row["id"]: counts.total_parameters(of_row(row)) for row in READ}
        for name, twin in (
            ("XiaomiMiMo--MiMo-7B-Base", "XiaomiMiMo--MiMo-7B-Base__as_qwen2"),
            ("moonshotai--Kimi-K2-Instruct", "moonshotai--Kimi-K2-Instruct__as_deepseek_v3"),
        ):
            assert totals[name] == totals[twin]
        assert totals["MiniMaxAI--MiniMax-M3"] == 426174565632
        assert totals["default--DbrxConfig"] == 2459207680

    def test_a_config_that_its_own_class_cannot_build_is_refused_with_the_key(self):
        row = next(row for row in COUNTED if row not in READ)
        with pytest.raises(InputError, match="num_key_value_heads is null"):
            of_row(row)


class TestParameters:
    def test_layers_embedding_final_norm_and_a_head_of_its_own_are_all_there_is(self):
        for name in ("gpt2", "qwen3-0.6b", "llama-3.1-8b"):
            model = read_model(name)
            parts = [counts.layer_parameters(model, layer).total for layer in model.layers]
            assert counts.total_parameters(model) == (
                counts.embedding_parameters(model)
                + counts.position_parameters(model)
                + sum(parts)
                + counts.norm_parameters(model)
                + (not model.tie_word_embeddings) * counts.embedding_parameters(model)
            )

    def test_tensor_parallelism_divides_what_it_shards_and_nothing_else(self):
        block = counts.ParameterSplit(sharded=100, replicated=7)
        assert [block.per_rank(tp) for tp in (1, 2, 4)] == [107, 57, 32]
        assert block.per_rank(8) == 13 + 7

    def test_biases_after_a_row_wise_matmul_are_replicated(self):
        model = read_model("gpt2")
        block = counts.layer_parameters(model, model.layers[0])
        assert block.attention.replicated == block.mlp.replicated == 768
        assert block.norm == counts.ParameterSplit(sharded=0, replicated=4 * 768)


class TestFlops:
    @pytest.mark.parametrize(
        ("sequence_length", "learnable", "attention_full", "causal_total"),
        [(8192, 1299.0, 422.21, 1510.11), (129024, 20459.32, 104735.08, 72826.86)],
    )
    def test_case_f05_causal_attention_counts_half(
        self, sequence_length, learnable, attention_full, causal_total
    ):
        """f05: llama-2-7b, TFLOP of a training step of 4 sequences (what 1299.0 implies).

        The source halves s^2; we count s (s + 1) / 2, so the causal totals are higher by the
        diagonal, 2e-5 of them at most.
        """
        model = read_model("llama-2-7b")
        tokens = 4 * sequence_length
        assert 6 * counts.matmul_parameters(model) * tokens / TERA == pytest.approx(
            learnable, abs=0.005
        )
        full = 3 * 4 * counts.attention_forward_flops(model, [sequence_length], causal=False)
        assert full / TERA == pytest.approx(attention_full, abs=0.005)
        total = counts.training_flops_per_token(model, sequence_length) * tokens / TERA
        assert causal_total < total == pytest.approx(causal_total, rel=2e-5)

    def test_case_f07_packed_documents_cost_the_sum_of_their_squares(self):
        model, lengths = read_model("llama-3.1-8b"), [1024, 1024, 2048]
        packed = counts.attention_forward_flops(model, lengths, causal=False)
        whole = counts.attention_forward_flops(model, [sum(lengths)], causal=False)
        assert packed / whole == 0.375
        assert keys_seen(4096, causal=False) == 16777216
        assert sum(keys_seen(n, causal=False) for n in lengths) == 6291456
        causal = counts.attention_forward_flops(model, lengths) / counts.attention_forward_flops(
            model, [sum(lengths)]
        )
        assert causal == pytest.approx(0.375, rel=1e-3)

    def test_case_f13_the_formula_decides_between_169_and_180_tflops(self):
        """f13: 40 layers, hidden 5120, vocabulary 32000; 2048 tokens; 2170 tokens/s per GPU."""
        model, tokens_per_s = read_model("llama-2-13b"), 2170
        six_n_only = 6 * counts.total_parameters(model) * tokens_per_s / TERA
        assert six_n_only == pytest.approx(169, abs=0.5)
        full = counts.training_flops_per_token(model, 2048, causal=False) * tokens_per_s / TERA
        assert 176 <= full <= 180
        causal = counts.training_flops_per_token(model, 2048) * tokens_per_s / TERA
        assert full - causal == pytest.approx(5.5, abs=0.1)

    def test_the_head_counts_even_when_tied_and_the_lookup_never(self):
        model = read_family(
            "tiny", {"model_type": "qwen3", "hidden_size": 8, "num_attention_heads": 2,
                     "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 16,
                     "num_hidden_layers": 1, "vocab_size": 10, "tie_word_embeddings": True}
        )  # fmt: skip
        projections = 8 * 8 + 2 * 8 * 4 + 8 * 8
        matmuls = projections + 3 * 8 * 16 + 10 * 8
        assert counts.matmul_parameters(model) == matmuls
        one_key = 4 * 2 * 4
        assert counts.forward_flops_per_token(model, 1) == 2 * matmuls + one_key
        assert counts.forward_flops_per_token(model, 3) == 2 * matmuls + 2 * one_key

    def test_training_is_three_forwards(self):
        model = read_model("mistral-7b")
        forward = counts.forward_flops_per_token(model, 8192)
        assert counts.training_flops_per_token(model, 8192) == 3 * forward

    def test_a_window_bounds_attention_in_its_own_layers_only(self):
        config = {"model_type": "qwen3", "num_hidden_layers": 2, "sliding_window": 16}
        config |= {"use_sliding_window": True, "max_window_layers": 1}
        model = read_family("half windowed", config)
        per_key = 4 * 32 * 128
        seen = keys_seen(64) + keys_seen(64, window=16)
        assert counts.attention_forward_flops(model, [64]) == per_key * seen

    @given(lengths=st.lists(st.integers(1, 5000), max_size=8))
    def test_attention_adds_up_over_documents(self, lengths):
        model = read_model("mistral-7b")
        apart = sum(counts.attention_forward_flops(model, [length]) for length in lengths)
        assert counts.attention_forward_flops(model, lengths) == apart

    @pytest.mark.parametrize("sequence_length", [0, -1])
    def test_an_empty_sequence_is_refused(self, sequence_length):
        with pytest.raises(InputError, match=rf"sequence length is {sequence_length}"):
            counts.forward_flops_per_token(read_model("gpt2"), sequence_length)


class TestKvCache:
    def test_a_windowed_layer_stops_growing_at_its_window(self):
        model = read_model("mistral-7b")
        per_token = counts.kv_cache_bytes_per_token(model)
        assert counts.kv_cache_bytes(model, 100) == 100 * per_token
        assert counts.kv_cache_bytes(model, 32768) == 4096 * per_token

    def test_a_model_without_windows_grows_with_the_context(self):
        model = read_model("llama-3.1-8b")
        assert counts.kv_cache_bytes(model, 131072) == 131072 * 131072


class TestTrainingState:
    def test_adamw_in_mixed_precision_keeps_16_bytes_a_parameter(self):
        model = read_model("gpt2")
        state = counts.training_state_bytes(model, PRECISIONS["bf16_mixed"], "adamw")
        parameters = counts.total_parameters(model)
        assert state.parameters == state.gradients == 4 * parameters
        assert state.optimizer == 8 * parameters
        assert state.total == 16 * parameters

    def test_plain_sgd_keeps_no_optimizer_state(self):
        state = counts.training_state_bytes(read_model("gpt2"), PRECISIONS["fp32"], "sgd")
        assert state.optimizer == 0
