"""Bytes that autograd keeps of one layer, final norm and head of small Hugging Face models.

Expected figures are those of ``tools/saved_tensors.py`` (transformers 5.24, torch 2.13, CPU), in
bytes per token without token ids, rotary tables, logits and autocast's copies of weights.
"""

import json

import pytest

from meshfit.engines.native.profile import NATIVE
from meshfit.predict.memory.activations import head_tensors, layer_tensors
from meshfit.predict.shape.layer_basis import autocast, cast, layer_basis
from meshfit.predict.shape.saved import total
from meshfit.workload.models import read_model
from meshfit.workload.training import RuntimeSpec
from tests.predict.builders import BF16, FP32, training

COMMON = {
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 256,
}
GROUPED = COMMON | {"num_key_value_heads": 2}
LATENT = COMMON | {
    "model_type": "deepseek_v3",
    "num_key_value_heads": 4,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 3,
    "n_group": 2,
    "topk_group": 1,
    "moe_intermediate_size": 96,
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 96, "head_dim": 32}
CONFIGS = {
    "qwen2": GROUPED | {"model_type": "qwen2"},
    "mixtral": GROUPED
    | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3-moe": GROUPED | EXPERTS | {"model_type": "qwen3_moe"},
    "deepseek-v3": LATENT | {"first_k_dense_replace": 0},
    "deepseek-v3-dense": LATENT | {"first_k_dense_replace": 1},
    "gemma-2": GROUPED
    | {"model_type": "gemma2", "head_dim": 32, "attn_logit_softcapping": 50.0, "sliding_window": 4096},
    "gpt-j": {
        "model_type": "gptj", "n_embd": 128, "n_layer": 1, "n_head": 4, "rotary_dim": 16,
        "vocab_size": 512, "n_positions": 256,
    },
    "falcon": {
        "model_type": "falcon", "hidden_size": 128, "num_hidden_layers": 1,
        "num_attention_heads": 4, "vocab_size": 512, "new_decoder_architecture": False,
        "parallel_attn": True, "multi_query": True, "bias": False,
    },
    "gpt-neox": COMMON | {"model_type": "gpt_neox"},
}  # fmt: skip
MEASURED = [
    ("qwen2", 6684.0, 11804.0, 8220.0),
    ("mixtral", 10624.1, 19584.1, None),
    ("qwen3-moe", 9018.2, 15552.2, None),
    ("deepseek-v3", 13440.2, 20192.2, None),
    ("deepseek-v3-dense", 10900.0, 16404.0, 12180.0),
    ("gemma-2", 13864.0, 18472.0, 14632.0),
    ("gpt-j", 7192.0, 14368.0, 8480.0),
    ("falcon", 6152.1, 9488.1, 6928.1),
]
"""Cast to bf16, in fp32, under autocast (None: its copies of stacked experts were not told apart)."""


def predicted(name, numerics, precision, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name]))
    model = read_model(str(tmp_path))
    unfused = RuntimeSpec(attention="unfused" if name == "gemma-2" else "auto")
    spec = training(sequence_length=128, precision=precision, runtime=unfused)
    basis = layer_basis(model, spec, NATIVE, numerics, on_cpu=True)
    return total(layer_tensors(model.layers[0], basis) + head_tensors(basis)).undivided


@pytest.mark.parametrize(("name", "as_bf16", "as_fp32", "under_autocast"), MEASURED)
def test_saved_bytes_are_those_that_autograd_saved(
    name, as_bf16, as_fp32, under_autocast, tmp_path
):
    assert predicted(name, cast(BF16), BF16, tmp_path) == pytest.approx(as_bf16, rel=0.005)
    assert predicted(name, cast(FP32), FP32, tmp_path) == pytest.approx(as_fp32, rel=0.005)
    if under_autocast is not None:
        found = predicted(name, autocast(BF16), BF16, tmp_path)
        assert found == pytest.approx(under_autocast, rel=0.005)


def test_biased_output_projections_on_cpu_copy_their_input_which_is_not_modelled(tmp_path):
    """4,508 bytes of which 256 are that copy; kernels on CUDA make none."""
    assert predicted("gpt-neox", cast(BF16), BF16, tmp_path) == 4508.0 - 256.0
