"""What a quantization_config makes of the weights, in bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.errors import InputError
from meshfit.workload import counts
from meshfit.workload.blocks.tensor import Tensor
from meshfit.workload.families import read_family
from meshfit.workload.models import read_model
from meshfit.workload.quantization import (
    COMMON_FORMATS,
    FP8_BLOCK,
    everything_as,
    plain_element_bytes,
    read_quantization,
    weight_bytes,
)

TINY = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 1000,
}  # fmt: skip
PROJECTIONS = 4 * 256 * 256
MLP = 3 * 256 * 512


def stored(**quantization):
    model = read_family("tiny", {**TINY, "quantization_config": quantization})
    return weight_bytes(model, read_quantization(model.config))


def test_without_a_config_every_parameter_has_the_plain_type():
    model = read_family("tiny", TINY)
    assert read_quantization(model.config) is None
    assert weight_bytes(model, None).total == 2 * counts.total_parameters(model)


def test_fp8_blocks_have_one_fp32_scale_each():
    found = stored(quant_method="fp8", weight_block_size=[128, 128])
    assert found.quantized_parameters == 2 * (PROJECTIONS + MLP)
    assert found.scales == 4 * found.quantized_parameters // 128**2
    kept = counts.total_parameters(read_family("tiny", TINY)) - found.quantized_parameters
    assert found.kept_parameters == kept
    assert found.weights == found.quantized_parameters + 2 * kept


def test_blocks_at_the_edge_count_whole():
    tensor = Tensor(name="t", shape=(129, 1), role="linear", copies=3)
    assert FP8_BLOCK.scale_bytes_of(tensor) == 3 * 2 * 4


def test_fp8_without_blocks_has_one_scale_a_tensor():
    assert stored(quant_method="fp8").scales == 4 * 2 * 7


@pytest.mark.parametrize("method", ["awq", "gptq"])
def test_four_bit_groups_have_a_scale_and_a_zero_point(method):
    found = stored(quant_method=method, bits=4, group_size=64)
    groups = found.quantized_parameters // 64
    index = 4 * 2 * (6 * 256 + 512) if method == "gptq" else 0
    assert found.scales == groups * 2 + groups // 2 + index
    assert found.weights == found.quantized_parameters // 2 + 2 * found.kept_parameters


def test_ignored_modules_stay_as_they_are():
    everything = stored(quant_method="awq").quantized_parameters
    for ignored, kept in (
        (["model.layers.0.mlp"], MLP),
        (["layers.1.self_attn.q_proj"], 256 * 256),
        (["self_attn"], 2 * PROJECTIONS),
        (["model.layers.*.mlp.down_proj"], 2 * 256 * 512),
        (["re:.*self_attn.*"], 2 * PROJECTIONS),
        (["down_proj"], 2 * 256 * 512),
        (["model.layers.10.mlp", "visual"], 0),
    ):
        found = stored(quant_method="awq", modules_to_not_convert=ignored)
        assert everything - found.quantized_parameters == kept, ignored


def test_mxfp4_of_gpt_oss_is_in_its_experts_only():
    model = read_model("gpt-oss-20b")
    found = weight_bytes(model, read_quantization(model.config))
    biases = 24 * 32 * (2 * 2880 + 2880)
    experts = counts.parameters_by_part(model)["routed_expert"] - biases
    assert found.quantized_parameters == experts
    assert found.scales == experts // 32


def test_compressed_tensors_take_the_first_group_that_names_a_module():
    scheme = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
    groups = {"group_0": {"targets": ["re:.*mlp.*"], "weights": scheme}}
    found = stored(quant_method="compressed-tensors", config_groups=groups)
    assert found.quantized_parameters == 2 * MLP
    everywhere = {"group_0": {"targets": ["Linear"], "weights": scheme}}
    found = stored(quant_method="compressed-tensors", config_groups=everywhere, ignore=["lm_head"])
    assert found.quantized_parameters == 2 * (PROJECTIONS + MLP)
    found = stored(quant_method="compressed-tensors", config_groups=everywhere)
    assert found.quantized_parameters == 2 * (PROJECTIONS + MLP) + 1000 * 256


@pytest.mark.parametrize("algorithm", ["FP8", "NVFP4", "W4A16_AWQ"])
def test_modelopt_names_its_algorithm(algorithm):
    assert stored(quant_method="modelopt", quant_algo=algorithm).scales > 0


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        ({"quant_method": "new"}, r"quant_method is 'new'; known: awq"),
        ({"bits": 4}, r"quant_method is null"),
        ({"quant_method": "modelopt", "quant_algo": "X"}, r"quant_algo is 'X'; known: FP8"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, r"weight_block_size is \[128\]"),
        ({"quant_method": "awq", "ignore": "lm_head"}, r"ignore is 'lm_head'; expected a list"),
        ({"quant_method": "awq", "ignore": ["re:("]}, r"no regular expression"),
        ({"quant_method": "awq", "bits": "four"}, r"bits is 'four'"),
        ({"quant_method": "compressed-tensors"}, r"config_groups is missing"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_key(quantization, message):
    with pytest.raises(InputError, match=message):
        read_quantization({"quantization_config": quantization})


@given(rows=st.integers(1, 600), columns=st.integers(1, 600), copies=st.integers(1, 4))
def test_fewer_bits_never_take_more_weight_bytes(rows, columns, copies):
    tensor = Tensor(name="t", shape=(rows, columns), role="linear", copies=copies)
    for form in COMMON_FORMATS.values():
        assert form.weight_bytes(tensor) == -(-tensor.elements * form.bits // 8)
        assert 0 < form.scale_bytes_of(tensor) <= copies * (4 * rows * columns + 4 * rows + 4)


def test_routers_norms_and_embeddings_stay_in_every_format():
    model = read_model("qwen3-30b-a3b")
    for form in COMMON_FORMATS.values():
        kept = weight_bytes(model, everything_as(form)).kept_parameters
        parts = counts.parameters_by_part(model)
        routers, norms_of_heads = parts["mlp_or_other"], 48 * (2 * 128 + 2048)
        vectors = parts["norm"] + norms_of_heads
        assert kept == parts["embedding"] + parts["lm_head"] + routers + vectors


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({"torch_dtype": "bfloat16"}, 2),
        ({"dtype": "float32"}, 4),
        ({"text_config": {"dtype": "torch.float16"}}, 2),
        ({"torch_dtype": "auto"}, None),
        ({}, None),
    ],
)
def test_the_plain_type_is_what_the_config_names(config, size):
    assert plain_element_bytes(config) == size
