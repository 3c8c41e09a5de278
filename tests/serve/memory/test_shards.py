"""What ranks hold adds up to the model."""

import pytest

from meshfit.engines import engine_profile
from meshfit.serve.memory.shards import stages
from meshfit.serve.setting.layout import ServingLayout
from meshfit.serve.setting.quantized import WEIGHT_FORMATS, served_as
from meshfit.workload.models import read_model
from meshfit.workload.quantization import read_quantization, weight_bytes

VLLM = engine_profile("vllm")


def held(model, **degrees):
    return stages(model, ServingLayout(**degrees), VLLM)


@pytest.mark.parametrize(
    "name",
    [
        "llama-3.1-8b",
        "gpt-oss-20b",
        "deepseek-v3",
        "qwen3-next-80b-a3b",
        "nemotron-h-56b",
        "gemma-2b",
    ],
)
def test_one_rank_holds_the_whole_model(name):
    model = read_model(name)
    whole = weight_bytes(model, read_quantization(model.config)).total
    padding = 64 * model.hidden_size * 2 * 2
    assert held(model)[0].weight_bytes == pytest.approx(whole, abs=padding, rel=1e-4)


@pytest.mark.parametrize("name", ["llama-3.1-70b", "qwen3-235b-a22b", "qwen3.5-397b-a17b"])
@pytest.mark.parametrize("degrees", [{"tp": 2}, {"tp": 4, "pp": 2}])
def test_ranks_hold_more_than_their_share_by_little(name, degrees):
    model = read_model(name)
    own = held(model, **degrees)
    ranks = degrees["tp"]
    total = sum(stage.weight_bytes * ranks for stage in own)
    whole = held(model)[0].weight_bytes
    assert whole <= total <= 1.06 * whole


def test_experts_are_spread_by_ep_and_cut_by_the_rest():
    model = read_model("qwen3-235b-a22b")
    whole, cut, spread = (
        sum(s.elements for g in held(model, **d)[0].layers for s in g.shards if s.is_expert)
        for d in ({}, {"tp": 8}, {"tp": 8, "ep": 8})
    )
    assert whole == 8 * cut == 8 * spread


def test_keys_are_copied_beyond_their_heads():
    model = read_model("llama-3.1-8b")

    def key_rows(tp):
        shards = held(model, tp=tp)[0].layers[0].shards
        return next(s.outputs for s in shards if "k_proj" in s.tensor.name)

    assert key_rows(8) == key_rows(16) == 128


def test_a_tied_head_weighs_where_it_is_a_copy():
    model = read_model("gemma-2b")
    embedding = 256000 * 2048 * 2
    assert held(model)[0].weight_bytes == pytest.approx(2 * 2_506_172_416, rel=1e-3)
    first, last = held(model, pp=2)
    assert first.weight_bytes + last.weight_bytes == pytest.approx(
        2 * 2_506_172_416 + embedding, rel=1e-3
    )


def test_equal_stages_are_one_object():
    inner = held(read_model("llama-3.1-70b"), pp=8)[1:-1]
    assert all(stage is inner[0] for stage in inner)


@pytest.mark.parametrize("weights", WEIGHT_FORMATS)
def test_every_format_is_read_and_none_is_larger_than_16_bits(weights):
    model = read_model("llama-3.1-8b")
    assert held(served_as(model, weights))[0].weight_bytes <= held(model)[0].weight_bytes
