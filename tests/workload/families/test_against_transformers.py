"""transformers is the reference: same defaults, same parameters, same tensor-parallel split.

A family is added here with the model it builds (``TINY``); the defaults are checked by themselves.
"""

import re

import pytest

from meshfit.errors import InputError
from meshfit.workload import counts
from meshfit.workload.families import FAMILIES, read_family
from meshfit.workload.families.towers import WRAPPERS
from meshfit.workload.parts import PARTS, part_of

transformers = pytest.importorskip("transformers")

DECODER = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
GPT2 = {"vocab_size": 97, "n_embd": 32, "n_head": 4, "n_layer": 3, "n_positions": 24}
EXPERTS = {
    "num_experts": 6, "num_local_experts": 6, "n_routed_experts": 6, "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
}  # fmt: skip
LATENT = {
    "q_lora_rank": 12, "kv_lora_rank": 8, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4,
    "v_head_dim": 10,
}  # fmt: skip
INDEXER = {"index_n_heads": 3, "index_head_dim": 8, "index_topk": 4}
DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6,
    "linear_value_head_dim": 10, "linear_conv_kernel_dim": 3, "head_dim": 16,
}  # fmt: skip
MAMBA2 = {
    "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 6, "mamba_n_groups": 2,
    "mamba_d_conv": 3,
}  # fmt: skip
QWEN_VISION = {
    "depth": 3, "hidden_size": 32, "intermediate_size": 40, "num_heads": 4, "patch_size": 4,
    "out_hidden_size": 32, "num_position_embeddings": 9, "deepstack_visual_indexes": [0, 2],
}  # fmt: skip
GLM_VISION = {
    "depth": 2, "hidden_size": 32, "intermediate_size": 40, "num_heads": 4, "patch_size": 4,
    "image_size": 16, "out_hidden_size": 32,
}  # fmt: skip
CLIP = {
    "model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 40,
    "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 28, "patch_size": 14,
}  # fmt: skip


def decoder(model_type, *left_out, **changes):
    """A tiny config of a Llama-like family, without the keys in ``left_out``."""
    config = {"model_type": model_type, **DECODER, **changes}
    return {key: value for key, value in config.items() if key not in left_out}


TINY = {
    "llama": decoder("llama"),
    "llama, multi-head by default": decoder("llama", num_key_value_heads=None),
    "llama, biases": decoder("llama", attention_bias=True, mlp_bias=True),
    "llama, tied, wide heads": decoder("llama", head_dim=16, tie_word_embeddings=True),
    "qwen2": decoder("qwen2"),
    "qwen2, tied, wide heads": decoder("qwen2", head_dim=16, tie_word_embeddings=True),
    "qwen3, default head_dim": decoder("qwen3"),
    "qwen3, biases, tied": decoder(
        "qwen3", head_dim=16, attention_bias=True, tie_word_embeddings=True
    ),
    "mistral": decoder("mistral"),
    "mistral, wide heads": decoder("mistral", head_dim=16),
    "gpt2": {"model_type": "gpt2", **GPT2},
    "gpt2, untied, own inner size": {
        "model_type": "gpt2", **GPT2, "n_inner": 40, "tie_word_embeddings": False,
    },
    "gpt2, common names": {
        "model_type": "gpt2", "vocab_size": 97, "hidden_size": 32, "num_attention_heads": 4,
        "num_hidden_layers": 3, "max_position_embeddings": 24,
    },
}  # fmt: skip
"""Configs of families whose layers predictions know; compared block by block as well."""

OTHERS = {
    "afmoe": decoder(
        "afmoe", **EXPERTS, head_dim=16, num_dense_layers=1, num_shared_experts=2,
        global_attn_every_n_layers=2,
    ),
    "apertus": decoder("apertus"),
    "aria_text": decoder(
        "aria_text", moe_num_experts=6, moe_topk=2, moe_num_shared_experts=3, mlp_bias=True
    ),
    "arcee": decoder("arcee", mlp_bias=True),
    "bailing_hybrid": decoder(
        "bailing_hybrid", **{**LATENT, "q_lora_rank": None}, num_hidden_layers=4, num_experts=6,
        num_experts_per_token=2, num_shared_experts=2, moe_intermediate_size=24, head_dim=6,
        layer_group_size=2, num_nextn_predict_layers=1, pad_token_id=0,
    ),
    "bamba": decoder("bamba", attn_layer_indices=[1], **MAMBA2),
    "bamba, biases": decoder(
        "bamba", attn_layer_indices=[0], attention_bias=True, mlp_bias=True, mamba_proj_bias=True,
        mamba_conv_bias=False, **MAMBA2,
    ),
    "bitnet": decoder("bitnet"),
    "bloom": {"model_type": "bloom", "vocab_size": 96, "hidden_size": 32, "n_head": 4, "n_layer": 3},
    "codegen": {"model_type": "codegen", **GPT2, "rotary_dim": 4, "n_inner": None},
    "cohere": decoder("cohere"),
    "cohere2": decoder("cohere2", attention_bias=True, tie_word_embeddings=False),
    "cohere2_moe": decoder("cohere2_moe", **EXPERTS, num_hidden_layers=5),
    "cohere2_moe, dense in front": decoder(
        "cohere2_moe", **EXPERTS, num_hidden_layers=5, first_k_dense_replace=2,
        prefix_dense_intermediate_size=20, num_shared_experts=2,
    ),
    "cwm": decoder("cwm", head_dim=16, num_hidden_layers=5),
    "deepseek_v2": decoder("deepseek_v2", **LATENT, **EXPERTS, first_k_dense_replace=1),
    "deepseek_v2, full queries": decoder(
        "deepseek_v2", **{**LATENT, "q_lora_rank": None}, **EXPERTS, attention_bias=True
    ),
    "deepseek_v3": decoder("deepseek_v3", **LATENT, **EXPERTS, first_k_dense_replace=2),
    "deepseek_v32": decoder(
        "deepseek_v32", **LATENT, **EXPERTS, **INDEXER, first_k_dense_replace=1
    ),
    "deepseek_v4": decoder(
        "deepseek_v4", "num_key_value_heads", "intermediate_size", **EXPERTS, **INDEXER, num_hidden_layers=4, head_dim=8,
        compress_ratios=[0, 4, 128, 4, 0], q_lora_rank=12, o_groups=2, o_lora_rank=6, hc_mult=2,
    ),
    "ernie4_5": decoder("ernie4_5", use_bias=True, head_dim=16),
    "dots1": decoder("dots1", **EXPERTS, n_shared_experts=2, first_k_dense_replace=1),
    "ernie4_5_moe": decoder(
        "ernie4_5_moe", moe_num_experts=6, moe_k=2, moe_intermediate_size=24,
        moe_num_shared_experts=2, num_hidden_layers=5, moe_layer_interval=2,
    ),
    "exaone": decoder("exaone", "num_hidden_layers", num_layers=2),
    "exaone4": decoder("exaone4"),
    "exaone_moe": decoder(
        "exaone_moe", **{k: v for k, v in EXPERTS.items() if k != "n_routed_experts"},
        num_shared_experts=2,
    ),
    "falcon": {
        "model_type": "falcon", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4,
        "num_hidden_layers": 3,
    },
    "falcon, new architecture": {
        "model_type": "falcon", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4,
        "num_hidden_layers": 3, "new_decoder_architecture": True, "num_kv_heads": 2, "bias": True,
    },
    "falcon, neither parallel nor multi-query": {
        "model_type": "falcon", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4,
        "num_hidden_layers": 3, "parallel_attn": False, "multi_query": False,
    },
    "falcon_h1": decoder("falcon_h1", mamba_d_ssm=64, **MAMBA2),
    "falcon_h1, with norm": decoder("falcon_h1", mamba_d_ssm=64, mamba_rms_norm=True, **MAMBA2),
    "falcon_mamba": {
        "model_type": "falcon_mamba", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 3,
        "use_bias": True, "tie_word_embeddings": False, "intermediate_size": 40, "expand": 16,
    },
    "flex_olmo": decoder("flex_olmo", **EXPERTS, pad_token_id=0),
    "gemma": decoder("gemma", head_dim=16),
    "gemma2": decoder("gemma2", attention_bias=True),
    "gemma3_text": decoder("gemma3_text", tie_word_embeddings=False),
    "gemma3": {
        "model_type": "gemma3",
        "text_config": decoder("gemma3_text"),
        "vision_config": {
            "model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 40,
            "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 28, "patch_size": 14,
            "vision_use_head": False,
        },
    },
    "gemma3n_text": decoder(
        "gemma3n_text", num_hidden_layers=6, num_kv_shared_layers=1, head_dim=8,
        intermediate_size=[48, 48, 40, 40, 40, 40], vocab_size_per_layer_input=20,
        hidden_size_per_layer_input=6, laurel_rank=5, altup_num_inputs=3,
    ),
    "gemma4_text": decoder(
        "gemma4_text", num_hidden_layers=8, num_kv_shared_layers=2, use_double_wide_mlp=True,
        hidden_size_per_layer_input=6, vocab_size_per_layer_input=20, head_dim=8,
        global_head_dim=16, layer_types=["sliding_attention", "full_attention"] * 4,
    ),
    "gemma4, experts and both towers": {
        "model_type": "gemma4",
        "text_config": decoder(
            "gemma4_text", enable_moe_block=True, num_experts=6, top_k_experts=2,
            moe_intermediate_size=24, attention_k_eq_v=True, num_global_key_value_heads=1,
            hidden_size_per_layer_input=0, head_dim=8, global_head_dim=16,
        ),
        "vision_config": {
            "model_type": "gemma4_vision", "hidden_size": 32, "intermediate_size": 40,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
            "head_dim": 8, "patch_size": 4, "position_embedding_size": 10,
        },
        "audio_config": {
            "model_type": "gemma4_audio", "hidden_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4, "subsampling_conv_channels": [16, 8], "output_proj_dims": 20,
        },
    },
    "gemma4_text, sizes of a layer": decoder(
        "gemma4_text", num_hidden_layers=4, head_dim=8, global_head_dim=32,
        layer_types=["sliding_attention", "full_attention"] * 2,
        per_layer_config={
            "01": {"head_dim": 16, "num_key_value_heads": 4},
            "03": {"head_dim": 16, "num_key_value_heads": 4},
        },
    ),
    "glm": decoder("glm", head_dim=16, pad_token_id=0),
    "glm4": decoder("glm4", head_dim=16, pad_token_id=0),
    "glm4_moe": decoder("glm4_moe", **EXPERTS, head_dim=16, use_qk_norm=True, n_shared_experts=2),
    "glm4_moe_lite": decoder("glm4_moe_lite", **LATENT, **EXPERTS),
    "glm_moe_dsa": decoder(
        "glm_moe_dsa", **LATENT, **EXPERTS, **INDEXER, num_hidden_layers=6, index_topk_freq=3
    ),
    "gpt_bigcode": {"model_type": "gpt_bigcode", **GPT2},
    "gpt_bigcode, multi-head": {"model_type": "gpt_bigcode", **GPT2, "multi_query": False},
    "gpt_neo": {
        "model_type": "gpt_neo", "vocab_size": 96, "hidden_size": 32, "num_heads": 4,
        "num_layers": 4, "attention_types": [[["global", "local"], 2]],
        "max_position_embeddings": 24,
    },
    "gpt_neox": decoder("gpt_neox", "num_key_value_heads", attention_bias=False),
    "gpt_oss": decoder("gpt_oss", **EXPERTS, head_dim=16),
    "gpt-sw3": {"model_type": "gpt-sw3", **GPT2},
    "gptj": {"model_type": "gptj", **GPT2, "rotary_dim": 4, "n_inner": 40},
    "granite": decoder("granite", mlp_bias=True),
    "granite_swa": decoder("granite_swa", mlp_bias=True),
    "granitemoe": decoder("granitemoe", **EXPERTS),
    "granitemoe_swa": decoder("granitemoe_swa", **EXPERTS, shared_intermediate_size=20),
    "granitemoehybrid": decoder(
        "granitemoehybrid", **EXPERTS, **MAMBA2, shared_intermediate_size=20,
        layer_types=["mamba", "attention", "mamba"],
    ),
    "granitemoehybrid, dense": decoder(
        "granitemoehybrid", **{**EXPERTS, "num_local_experts": 0}, **MAMBA2,
        layer_types=["mamba", "attention", "mamba"],
    ),
    "granitemoeshared": decoder("granitemoeshared", **EXPERTS, shared_intermediate_size=20),
    "helium": decoder("helium", head_dim=8, attention_bias=True),
    "hy_v3": decoder("hy_v3", **EXPERTS, head_dim=16, num_shared_experts=2, mlp_bias=True),
    "hyperclovax": decoder("hyperclovax", head_dim=16),
    "internlm3": decoder("internlm3"),
    "iquestcoder": decoder("iquestcoder", head_dim=16),
    "jais2": decoder("jais2"),
    "hunyuan_v1_dense": decoder("hunyuan_v1_dense", head_dim=16, attention_bias=True),
    "hunyuan_v1_moe": decoder("hunyuan_v1_moe", head_dim=16, num_experts=6, moe_topk=2),
    "jamba": decoder(
        "jamba", **EXPERTS, num_hidden_layers=4, attn_layer_period=2, attn_layer_offset=1,
        mamba_d_state=6, use_mamba_kernels=False,
    ),
    "kimi_linear": decoder(
        "kimi_linear", **{**LATENT, "q_lora_rank": None}, num_hidden_layers=4, pad_token_id=0,
        num_local_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, n_shared_experts=1,
        linear_attn_config={
            "full_attn_layers": [4], "kda_layers": [1, 2, 3], "head_dim": 6, "num_heads": 4,
            "short_conv_kernel_size": 3,
        },
    ),
    "kolibri1": decoder("kolibri1", "intermediate_size", **EXPERTS, head_dim=16, num_hidden_layers=6),
    "laguna": decoder(
        "laguna", **EXPERTS, head_dim=16, num_attention_heads_per_layer=[4, 2, 6],
        shared_expert_intermediate_size=20, gating=True,
    ),
    "laguna, a gate an element": decoder(
        "laguna", **EXPERTS, head_dim=16, gating="per-element", mlp_layer_types=["sparse"] * 3
    ),
    "lfm2": decoder("lfm2", full_attn_idxs=[1], conv_bias=True, block_multiple_of=8),
    "lfm2_moe": decoder(
        "lfm2_moe", **EXPERTS, num_dense_layers=1, layer_types=["conv", "full_attention", "conv"]
    ),
    "llama4": {
        "model_type": "llama4",
        "text_config": decoder(
            "llama4_text", **EXPERTS, num_hidden_layers=4, interleave_moe_layer_step=2,
            intermediate_size_mlp=40, head_dim=16,
        ),
    },
    "mamba": {"model_type": "mamba", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 3},
    "mamba2": {
        "model_type": "mamba2", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 3,
        "num_heads": 8, "head_dim": 8, "n_groups": 2, "state_size": 6, "use_bias": True,
    },
    "mellum": decoder("mellum", **EXPERTS, head_dim=16),
    "minicpm3": decoder("minicpm3", **LATENT),
    "mimo_v2_flash": decoder(
        "mimo_v2_flash", **EXPERTS, num_hidden_layers=6, num_key_value_heads=1, head_dim=12,
        v_head_dim=8, attention_bias=True,
    ),
    "minimax": decoder("minimax", **EXPERTS, head_dim=16),
    "minimax_m2": decoder("minimax_m2", **EXPERTS, head_dim=16),
    "minimax_m3_vl_text": decoder(
        "minimax_m3_vl_text", **{**EXPERTS, "moe_intermediate_size": 48}, head_dim=16, dense_intermediate_size=40,
        shared_intermediate_size=20, moe_layer_freq=[0, 1, 1],
        sparse_attention_config={
            "sparse_attention_freq": [0, 0, 1], "sparse_num_index_heads": 2, "sparse_index_dim": 6,
        },
    ),
    "ministral": decoder("ministral", head_dim=16),
    "ministral3": decoder("ministral3", head_dim=16),
    "mistral3": {
        "model_type": "mistral3", "text_config": decoder("mistral", head_dim=16),
        "vision_config": {
            "model_type": "pixtral", "hidden_size": 32, "intermediate_size": 40,
            "num_hidden_layers": 2, "num_attention_heads": 4, "patch_size": 4, "image_size": 16,
        },
    },
    "mistral4": decoder("mistral4", **LATENT, **EXPERTS),
    "mixtral": decoder("mixtral", **EXPERTS),
    "mpt": {
        "model_type": "mpt", "vocab_size": 96, "d_model": 32, "n_heads": 4, "n_layers": 3,
    },
    "mt5": {
        "model_type": "mt5", "vocab_size": 96, "d_model": 32, "d_kv": 6, "d_ff": 40, "num_layers": 3,
        "num_heads": 4, "tie_word_embeddings": False,
    },
    "nanochat": decoder("nanochat"),
    "nemotron": decoder("nemotron", attention_bias=True, mlp_bias=True),
    "nemotron_h": decoder(
        "nemotron_h", "num_hidden_layers", **EXPERTS, hybrid_override_pattern="ME*-E", head_dim=16,
        mamba_num_heads=8, mamba_head_dim=4, n_groups=2, ssm_state_size=6, mlp_bias=True,
        moe_shared_expert_intermediate_size=20, use_bias=True,
    ),
    "nemotron_h, latent experts": decoder(
        "nemotron_h", "num_hidden_layers", **EXPERTS, hybrid_override_pattern="M*E", head_dim=16,
        mamba_num_heads=8, mamba_head_dim=4, n_groups=2, ssm_state_size=6, moe_latent_size=12,
        moe_shared_expert_intermediate_size=20,
    ),
    "olmo": decoder("olmo"),
    "olmo2": decoder("olmo2", attention_bias=True),
    "olmo3": decoder("olmo3", num_hidden_layers=4),
    "olmo_hybrid": decoder("olmo_hybrid", num_hidden_layers=4, pad_token_id=0),
    "olmo_hybrid, own sizes": decoder(
        "olmo_hybrid", num_hidden_layers=3, pad_token_id=0, linear_num_key_heads=2, linear_num_value_heads=4,
        linear_key_head_dim=6, linear_value_head_dim=10, linear_conv_kernel_dim=3,
    ),
    "olmoe": decoder("olmoe", **EXPERTS),
    "opt": {
        "model_type": "opt", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4,
        "num_hidden_layers": 3, "ffn_dim": 40, "max_position_embeddings": 24,
    },
    "opt, narrow embeddings, norms behind": {
        "model_type": "opt", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4,
        "num_hidden_layers": 3, "ffn_dim": 40, "max_position_embeddings": 24,
        "word_embed_proj_dim": 16, "do_layer_norm_before": False, "enable_bias": False,
    },
    "persimmon": decoder("persimmon", "num_key_value_heads"),
    "phi": decoder("phi", qk_layernorm=True),
    "phi3": decoder("phi3", sliding_window=8, pad_token_id=0),
    "phimoe": decoder("phimoe", **EXPERTS, attention_bias=True, lm_head_bias=True),
    "qwen2_5_vl": {
        "model_type": "qwen2_5_vl", "text_config": decoder("qwen2_5_vl_text"),
        "vision_config": {
            "depth": 2, "hidden_size": 32, "intermediate_size": 40, "num_heads": 4,
            "out_hidden_size": 32,
        },
    },
    "qwen2_vl": {
        "model_type": "qwen2_vl", "text_config": decoder("qwen2_vl_text"),
        "vision_config": {"depth": 2, "embed_dim": 16, "hidden_size": 32, "num_heads": 4},
    },
    "qwen2_moe": decoder(
        "qwen2_moe", **EXPERTS, shared_expert_intermediate_size=20, decoder_sparse_step=2,
        num_hidden_layers=5, mlp_only_layers=[3],
    ),
    "qwen3_5": {
        "model_type": "qwen3_5", "vision_config": QWEN_VISION,
        "text_config": decoder("qwen3_5_text", num_hidden_layers=4, **DELTA),
    },
    "qwen3_5_moe": {
        "model_type": "qwen3_5_moe",
        "text_config": decoder(
            "qwen3_5_moe_text", "intermediate_size", num_hidden_layers=4, **DELTA, **EXPERTS,
            shared_expert_intermediate_size=20,
        ),
    },
    "qwen3_moe": decoder("qwen3_moe", **EXPERTS, head_dim=16, mlp_only_layers=[1]),
    "qwen3_next": decoder(
        "qwen3_next", num_hidden_layers=4, **DELTA, **EXPERTS, shared_expert_intermediate_size=20
    ),
    "qwen3_next, no shared expert": decoder(
        "qwen3_next", num_hidden_layers=4, **DELTA, **EXPERTS, shared_expert_intermediate_size=0
    ),
    "qwen3_vl": {
        "model_type": "qwen3_vl", "vision_config": QWEN_VISION, "tie_word_embeddings": True,
        "text_config": decoder("qwen3_vl_text", head_dim=8),
    },
    "qwen3_vl_moe": {
        "model_type": "qwen3_vl_moe", "vision_config": QWEN_VISION,
        "text_config": decoder("qwen3_vl_moe_text", **EXPERTS, head_dim=8),
    },
    "sarvam_mla": decoder("sarvam_mla", **{**LATENT, "q_lora_rank": None}, **EXPERTS),
    "sarvam_moe": decoder("sarvam_moe", **EXPERTS, head_dim=16, n_shared_experts=2),
    "recurrent_gemma": decoder("recurrent_gemma", lru_width=24, num_hidden_layers=4),
    "seed_oss": decoder("seed_oss", head_dim=16, attention_out_bias=True),
    "smollm3": decoder("smollm3", pad_token_id=0),
    "solar_open": decoder("solar_open", **EXPERTS, head_dim=16),
    "stablelm": decoder("stablelm", qk_layernorm=True, use_qkv_bias=True),
    "stablelm, parallel": decoder("stablelm", use_parallel_residual=True),
    "starcoder2": decoder("starcoder2", use_bias=False),
    "t5": {
        "model_type": "t5", "vocab_size": 96, "d_model": 32, "d_kv": 6, "d_ff": 40, "num_layers": 3,
        "num_decoder_layers": 2, "num_heads": 4, "feed_forward_proj": "gated-gelu",
    },
    "umt5": {
        "model_type": "umt5", "vocab_size": 96, "d_model": 32, "d_kv": 6, "d_ff": 40,
        "num_layers": 3, "num_decoder_layers": 2, "num_heads": 4,
    },
    "vaultgemma": decoder("vaultgemma"),
    "youtu": decoder("youtu", **LATENT),
}  # fmt: skip


WRAPPED = {
    "glm46v": {
        "model_type": "glm46v", "vision_config": GLM_VISION, "text_config": decoder("glm4v_text"),
    },
    "glm4v": {
        "model_type": "glm4v", "vision_config": {**GLM_VISION, "attention_bias": True},
        "text_config": decoder("glm4v_text", head_dim=16), "tie_word_embeddings": True,
    },
    "glm4v_moe": {
        "model_type": "glm4v_moe", "vision_config": GLM_VISION,
        "text_config": decoder("glm4v_moe_text", **EXPERTS),
    },
    "kimi_k25": {
        "model_type": "kimi_k25", "tie_word_embeddings": False,
        "text_config": decoder("deepseek_v3", **LATENT, **EXPERTS),
        "vision_config": {
            "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
            "num_attention_heads": 4, "patch_size": 4, "pos_emb_height": 3, "pos_emb_width": 5,
            "merge_kernel_size": [2, 1],
        },
    },
    "llava": {"model_type": "llava", "text_config": decoder("llama"), "vision_config": CLIP},
    "llava, siglip": {
        "model_type": "llava", "text_config": decoder("mistral"), "multimodal_projector_bias": False,
        "vision_config": {**CLIP, "model_type": "siglip_vision_model", "vision_use_head": False},
    },
    "minimax_m3_vl": {
        "model_type": "minimax_m3_vl", "projector_hidden_size": 24, "merged_hidden_size": 128,
        "text_config": decoder(
            "minimax_m3_vl_text", **{**EXPERTS, "moe_intermediate_size": 48}, head_dim=16
        ),
        "vision_config": {
            "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
            "num_attention_heads": 4, "patch_size": 4, "image_size": 16,
        },
    },
    "paligemma": {
        "model_type": "paligemma", "text_config": decoder("gemma", head_dim=16), "projection_dim": 32,
        "vision_config": {
            **CLIP, "model_type": "siglip_vision_model", "vision_use_head": False,
            "projection_dim": 32,
        },
    },
}  # fmt: skip
"""Configs that hold a tower and, inside, the config of a language model found by search."""

ALL = TINY | OTHERS | WRAPPED


def config_class(config):
    arguments = {key: value for key, value in config.items() if key != "model_type"}
    return transformers.AutoConfig.for_model(config["model_type"], **arguments)


def parameters_of(config):
    """Name -> number of elements of the model on the meta device, shared tensors once."""
    import torch

    classes = ("AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModel")
    built = config_class(config)
    for name in classes:
        auto = getattr(transformers, name)
        if type(built) in auto._model_mapping:
            with torch.device("meta"):
                model = auto.from_config(built)
            break
    model.tie_weights()
    return {name: parameter.numel() for name, parameter in model.named_parameters()}


def built_parts(config):
    """Parameters by part of the model on the meta device."""
    parts = dict.fromkeys(PARTS, 0)
    for name, elements in parameters_of(config).items():
        parts[part_of(name)] += elements
    return parts


@pytest.mark.parametrize("config", ALL.values(), ids=ALL)
def test_parameters_by_part_equal_those_of_the_built_model(config):
    expected = built_parts(config)
    model = read_family("tiny", config)
    assert counts.parameters_by_part(model) == expected
    assert counts.total_parameters(model) == sum(expected.values())


def flags_flipped(config):
    """(key, value, ``config`` with it) for every truth value of its class, or of a config inside,
    turned over."""
    try:
        stated = config_class({"model_type": config["model_type"]}).to_dict()
    except TypeError:  # a config class without a default for everything
        stated = {}
    for key, value in {**stated, **config}.items():
        if isinstance(value, bool):
            yield key, not value, {**config, key: not value}
        elif key in config and isinstance(config[key], dict) and "model_type" in config[key]:
            for inner, turned, flipped in flags_flipped(config[key]):
                yield f"{key}.{inner}", turned, {**config, key: flipped}


REFUSED = {
    ("ernie4_5_moe", "use_bias", True),  # biases of experts
    ("falcon_h1", "mamba_proj_bias", True),  # a bias on one of two projections
    ("falcon_h1", "projectors_bias", True),
    ("gemma4_text", "enable_moe_block", True),  # there is no default of how many experts
    ("gpt2", "add_cross_attention", True),  # an encoder beside it
    ("gpt-sw3", "add_cross_attention", True),
    ("gpt_bigcode", "add_cross_attention", True),
    ("mpt", "no_bias", False),  # transformers' MPT has none
}
"""Truth values that meshfit refuses: (``model_type``, key, value)."""

NOT_BUILT = {
    ("internlm3", "attention_bias", True),  # its class wants both biases or none
    ("internlm3", "mlp_bias", True),
    ("laguna", "moe_apply_router_weight_on_input", True),  # not implemented
}
"""Truth values with which transformers 5.24 builds no model, so that there is none to compare."""


@pytest.mark.parametrize("config", ALL.values(), ids=ALL)
def test_every_flag_of_a_config_class_counts_as_in_the_built_model_or_is_refused(config):
    compared = 0
    for key, value, flipped in flags_flipped(config):
        case = (config["model_type"], key, value)
        if case in REFUSED:
            with pytest.raises(InputError):
                read_family("flipped", flipped)
            continue
        ours = counts.parameters_by_part(read_family("flipped", flipped))
        if case in NOT_BUILT:
            with pytest.raises(Exception):  # noqa: B017 (each class has a reason of its own)
                built_parts(flipped)
            continue
        assert ours == built_parts(flipped), key
        compared += 1
    assert compared >= 6, "fewer truth values were compared than every config class has"


@pytest.mark.parametrize("inner", [None, True, False])
@pytest.mark.parametrize("outer", [None, True, False])
@pytest.mark.parametrize("name", [*WRAPPED, "qwen2_5_vl", "qwen3_vl", "gemma3", "mistral3"])
def test_embeddings_are_tied_as_in_the_built_model(name, outer, inner):
    config = {**ALL[name], "text_config": dict(ALL[name]["text_config"])}
    for where, tied in ((config, outer), (config["text_config"], inner)):
        where.pop("tie_word_embeddings", None)
        if tied is not None:
            where["tie_word_embeddings"] = tied
    ours = counts.parameters_by_part(read_family("tied", config))
    assert ours["lm_head"] == built_parts(config)["lm_head"]


def test_every_tower_is_compared():
    assert {config["model_type"] for config in WRAPPED.values()} == set(WRAPPERS)


def test_every_family_is_compared():
    compared = {config["model_type"] for config in ALL.values()}
    inside = {
        config[key]["model_type"]
        for config in ALL.values()
        for key in ("text_config",)
        if key in config
    }
    assert set(FAMILIES) - compared - inside == NOT_IN_TRANSFORMERS | CANNOT_BE_BUILT


NOT_IN_TRANSFORMERS = {"kimi_k2", "mimo", "minimax_m3", "qwen2_5_omni_text"}
"""Read as the family that their checkpoints' own code derives from, or without a class of theirs."""

CANNOT_BE_BUILT = {"dbrx"}
"""Transformers fails to build it (5.24: ``rope_theta`` missing)."""


@pytest.mark.parametrize("config", TINY.values(), ids=TINY)
def test_blocks_of_a_layer_equal_those_of_the_built_model(config):
    model = read_family("tiny", config)
    first = {
        name: elements
        for name, elements in parameters_of(config).items()
        if re.search(r"\.(layers|h)\.0\.", name)
    }
    block = counts.layer_parameters(model, model.layers[0])
    attention = sum(n for name, n in first.items() if re.search(r"\.(self_attn|attn)\.", name))
    mlp = sum(n for name, n in first.items() if ".mlp." in name)
    assert block.attention.total == attention
    assert block.mlp.total == mlp
    assert block.norm.total == sum(first.values()) - attention - mlp


@pytest.mark.parametrize(
    "config",
    [config for config in TINY.values() if config["model_type"] != "gpt2"],  # it has no plan
    ids=[name for name, config in TINY.items() if config["model_type"] != "gpt2"],
)
def test_what_is_sharded_is_what_the_familys_tensor_parallel_plan_shards(config):
    plan = config_class(config).base_model_tp_plan
    sharded = {"attention": 0, "mlp": 0}
    for name, elements in parameters_of(config).items():
        if ".layers.0." not in name:
            continue
        module, _, kind = name.removeprefix("model.").rpartition(".")
        style = plan.get(module.replace(".0.", ".*."), "")
        if style == "colwise" or (style == "rowwise" and kind == "weight"):
            sharded["attention" if "self_attn" in name else "mlp"] += elements
    model = read_family("tiny", config)
    block = counts.layer_parameters(model, model.layers[0])
    assert block.attention.sharded == sharded["attention"]
    assert block.mlp.sharded == sharded["mlp"]
    assert block.norm.sharded == 0


@pytest.mark.parametrize("model_type", sorted({config["model_type"] for config in TINY.values()}))
def test_an_empty_config_means_the_defaults_of_the_config_class(model_type):
    ours = read_family("defaults", {"model_type": model_type})
    theirs = config_class({"model_type": model_type})
    assert ours.hidden_size == theirs.hidden_size
    assert ours.vocab_size == theirs.vocab_size
    assert ours.num_hidden_layers == theirs.num_hidden_layers
    assert ours.max_position_embeddings == theirs.max_position_embeddings
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    assert ours.attention.num_attention_heads == theirs.num_attention_heads


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3", "mistral"])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"num_attention_heads": 64},
        {"num_attention_heads": 64, "num_key_value_heads": 16},
        {"hidden_size": 2048},
        {"head_dim": 64},
        {"sliding_window": 128},
        {"sliding_window": None},
        {"use_sliding_window": True, "max_window_layers": 5},
        {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 5},
        {"use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"] * 16},
        {"attention_dropout": 0.25},
        {"intermediate_size": 512},
    ],
    ids=lambda change: "+".join(change) or "nothing",
)
def test_attention_keys_resolve_as_in_the_config_class(model_type, change):
    ours = read_family("changed", {"model_type": model_type, **change})
    theirs = config_class({"model_type": model_type, **change})
    head_dim = getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads
    assert ours.attention.head_dim == head_dim
    assert ours.attention.num_key_value_heads == theirs.num_key_value_heads
    assert ours.mlp.intermediate_size == theirs.intermediate_size
    assert ours.dropout == theirs.attention_dropout
    assert [layer.attention.sliding_window for layer in ours.layers] == windows(theirs)


def windows(config):
    """Window of every layer as the modelling code applies it."""
    if config.model_type == "llama":
        return [None] * config.num_hidden_layers
    if config.model_type == "mistral":
        return [config.sliding_window] * config.num_hidden_layers
    sliding = [kind == "sliding_attention" for kind in config.layer_types]
    return [config.sliding_window if slides else None for slides in sliding]
