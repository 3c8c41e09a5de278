"""Sizes of models under the names that rules use."""

import pytest

from meshfit.engines import engine_profile
from meshfit.mesh.model_facts import model_facts
from meshfit.mesh.rules import violations
from meshfit.workload.families import read_family
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec
from meshfit.workload.models import catalogue, read_model
from tests.workload.configs import HYBRID


def test_a_dense_model_has_no_sizes_of_experts():
    facts = model_facts(read_model("llama-3.1-8b"))
    assert facts["num_experts"] == 0
    assert "moe_intermediate_size" not in facts
    assert (facts["num_key_value_heads"], facts["intermediate_size"]) == (8, 14336)


def model_of(layers, *, hidden_size):
    return ModelSpec(
        name="uneven",
        model_type="llama",
        hidden_size=hidden_size,
        vocab_size=512,
        layers=layers,
        norm="rms_norm",
        tie_word_embeddings=False,
        max_position_embeddings=4096,
    )


def test_layers_that_differ_are_as_wide_as_what_they_have_in_common():
    attention = AttentionSpec(num_attention_heads=8, num_key_value_heads=8, head_dim=16)
    layers = tuple(
        LayerSpec(attention=attention, mlp=MlpSpec(intermediate_size=width, gated=True))
        for width in (384, 512, 384)
    )
    assert model_facts(model_of(layers, hidden_size=128))["intermediate_size"] == 128


MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 256,
    "intermediate_size": 640,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 512,
}


@pytest.mark.parametrize(
    ("quantization", "size", "unit"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 128, "group"),
        ({"quant_method": "fp8", "weight_block_size": [128, 64]}, 64, "block"),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, None, None),
        ({"quant_method": "fp8"}, None, None),
        ({"quant_method": "mxfp4"}, None, None),
        ({"quant_method": "unheard of"}, None, None),
        (None, None, None),
    ],
)
def test_a_quantised_model_says_what_a_cut_must_keep_whole(quantization, size, unit):
    config = MIXTRAL | ({"quantization_config": quantization} if quantization else {})
    facts = model_facts(read_family("quantised", config))
    assert facts["moe_intermediate_size"] == 640
    assert facts.get("quantization_block_size") == size
    assert facts.get("quantization_unit") == unit


def test_blocks_of_attention_weights_are_known_beside_those_of_mlps():
    config = MIXTRAL | {
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 64]}
    }
    facts = model_facts(read_family("quantised", config))
    assert facts["attention_width"] == 256
    assert facts["attention_quantization_block_size"] == 64
    assert facts["key_value_quantization_rows"] == 128


def test_what_stays_unquantised_has_no_blocks_to_keep_whole():
    kept = {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["self_attn"],
    }
    facts = model_facts(read_family("quantised", MIXTRAL | {"quantization_config": kept}))
    assert facts["quantization_block_size"] == 128
    assert "attention_quantization_block_size" not in facts
    assert "key_value_quantization_rows" not in facts


def test_a_hybrid_has_the_heads_of_its_attention_and_those_of_its_mixers():
    facts = model_facts(read_family("hybrid", HYBRID))
    assert (facts["num_attention_heads"], facts["num_key_value_heads"]) == (8, 4)
    assert (facts["mixer_heads"], facts["state_space_groups"]) == (16, 2)


def test_layers_with_different_key_value_heads_are_all_known():
    layers = tuple(
        LayerSpec(
            attention=AttentionSpec(num_attention_heads=12, num_key_value_heads=heads, head_dim=16),
            mlp=MlpSpec(intermediate_size=256, gated=True),
        )
        for heads in (4, 6)
    )
    facts = model_facts(model_of(layers, hidden_size=192))
    assert (facts["num_key_value_heads"], facts["key_value_heads_of_layers"]) == (2, (4, 6))
    [refusal] = violations(facts | {"tp": 4}, engine_profile("vllm"))
    assert refusal.rule == "key_value_heads_divide_or_replicate"
    assert violations(facts | {"tp": 2}, engine_profile("vllm")) == ()


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_every_model_of_the_catalogue_gives_whole_positive_sizes(name):
    facts = model_facts(read_model(name))
    assert facts["hidden_size"] > 0
    sizes = [value for value in facts.values() if isinstance(value, int)]
    assert all(size >= 0 for size in sizes)
