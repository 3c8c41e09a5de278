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
