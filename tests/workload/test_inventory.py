"""The document's keys are published: keys may be added, none may go."""

import pytest

from meshfit.workload.families import read_family
from meshfit.workload.inventory import inventory
from meshfit.workload.models import read_model
from meshfit.workload.parts import PARTS


def test_the_published_keys_are_there_with_their_types():
    document = inventory(read_model("llama-3.1-8b"), 4096)
    assert document["parameters"]["total"] == document["parameters"]["active"] == 8030261248
    assert tuple(document["parameters"]["by_part"]) == PARTS
    assert document["kv_cache"]["bytes_per_token"] == 131072
    flops = document["flops"]
    assert flops["sequence_length"] == 4096
    assert flops["training_per_token"] == 3 * flops["forward_per_token"]
    assert "(s + 1) / 2" in flops["formula"]


def test_a_window_behind_full_layers_shows_in_the_dimensions():
    config = {"model_type": "qwen2", "num_hidden_layers": 3, "sliding_window": 64}
    config |= {"use_sliding_window": True, "max_window_layers": 1}
    dimensions = inventory(read_family("m", config), 128)["dimensions"]
    assert (dimensions["sliding_window"], dimensions["sliding_window_layers"]) == (64, 2)


def test_training_state_is_given_for_every_precision_and_optimizer():
    state = inventory(read_model("gpt2"), 1024)["training_state"]
    assert state["bf16_mixed"]["adamw"]["total"] == 16 * 124439808
    assert state["fp32"]["sgd"]["optimizer"] == 0


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt2"])
def test_without_windows_a_sequence_caches_every_token(name):
    cache = inventory(read_model(name), 512)["kv_cache"]
    assert cache["windowed_bytes_per_sequence"] == 512 * cache["bytes_per_token"]


def test_what_published_counts_leave_out_is_stated_apart():
    """DeepSeek-V3's report (2412.19437, section 2.2) gives its head 11.5 B parameters of its own."""
    document = inventory(read_model("deepseek-v3"), 4096)
    assert document["parameters"]["total"] == 671026404352
    heads = document["parameters"]["left_out"]["multi_token_prediction"]
    assert heads == pytest.approx(11.5e9, rel=0.02)
    extra = document["flops"]["multi_token_prediction"]
    assert extra["training_per_token"] == 3 * extra["forward_per_token"] > 0
    assert "1 head(s) for multi-token prediction are left out" in document["notes"][0]


def test_a_tower_that_the_class_leaves_out_is_counted_apart():
    document = inventory(read_model("qwen3.5-27b"), 4096)
    assert document["parameters"]["by_part"]["vision_or_other_tower"] == 0
    assert document["parameters"]["left_out"]["vision_config"] > 4e8


def test_states_and_latents_show_in_the_cache():
    hybrid = inventory(read_model("nemotron-3-nano-30b-a3b"), 4096)["kv_cache"]
    assert hybrid["bytes_per_token"] == 6144
    mamba = 23 * (64 * 64 * 128 * 4 + (64 * 64 + 2 * 8 * 128) * 3 * 2)
    assert hybrid["state_bytes_per_sequence"] == mamba
    sparse = inventory(read_model("glm-5"), 4096)["kv_cache"]
    assert sparse["bytes_per_token"] == 78 * (512 + 64) * 2
    assert sparse["indexer_bytes_per_token"] == 78 * 128 * 2
    assert "state_bytes_per_sequence" not in sparse


def test_a_format_that_is_not_known_is_absent_with_the_reason():
    config = {"model_type": "llama", "quantization_config": {"quant_method": "new"}}
    document = inventory(read_family("m", config), 128)
    assert "checkpoint" not in document["weights"]
    assert any("quant_method is 'new'" in note for note in document["notes"])


def test_an_encoder_decoder_has_both_stacks_and_a_cross_cache():
    document = inventory(read_family("t5", {"model_type": "t5"}), 512)
    assert [(entry["stack"], entry["count"]) for entry in document["layers"]] == [
        ("encoder", 6),
        ("decoder", 6),
    ]
    cache = document["kv_cache"]
    assert cache["cross_attention_bytes_per_source_token"] == cache["bytes_per_token"] == 12288
    assert "per target token" in document["notes"][0]


def test_formulas_name_every_kind_of_block():
    formula = inventory(read_model("qwen3.5-27b"), 4096)["flops"]["formula"]
    assert "gated delta net as a recurrence" in formula
    assert "softmax attention" in formula
