"""What a layer keeps, counted by hand in units of one hidden vector of one token."""

from dataclasses import replace
from typing import Any

from meshfit.predict.memory.megatron.layer import (
    backward_bytes,
    checkpoint_bytes,
    layer_bytes,
    layer_tensors,
    recomputed_bytes,
)
from meshfit.predict.memory.megatron.settings import LayerSettings
from meshfit.predict.memory.megatron.tensors import SPLITS, BytesPerToken, Split
from meshfit.workload.blocks.feed_forward import MoeSpec
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.blocks.state_space import MambaSpec
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec
from tests.predict.memory.megatron.builders import gpt, group

HIDDEN = 64
HEADS = 4

GPT = LayerSpec(
    attention=AttentionSpec(num_attention_heads=HEADS, num_key_value_heads=HEADS, head_dim=16),
    mlp=MlpSpec(intermediate_size=4 * HIDDEN, gated=False),
)
LLAMA = LayerSpec(
    attention=AttentionSpec(num_attention_heads=HEADS, num_key_value_heads=2, head_dim=16),
    mlp=MlpSpec(intermediate_size=3 * HIDDEN, gated=True),
)


def settings(**keys: Any) -> LayerSettings:
    usual: dict[str, Any] = {
        "element_bytes": 2,
        "linear_input_bytes": 2,
        "kernel": "cudnn",
        "fused_softmax": True,
        "softmax_in_fp32": False,
        "attention_dropout": False,
        "hidden_dropout": False,
        "norm_statistics": 0,
        "fuses_norms": True,
        "capacity_factor": 1.0,
        "basis": group(gpt(hidden_size=HIDDEN, heads=HEADS), {}).layer_basis,
    }
    return LayerSettings(**(usual | keys))


def part(of: BytesPerToken, split: Split) -> float:
    return of.by_split[SPLITS.index(split)]


def without_statistics(layer: LayerSpec, how: LayerSettings) -> BytesPerToken:
    """The sum of a layer's tensors, log-sum-exp of attention left out."""
    log_sum_exp = 4 * HEADS * (how.kernel != "unfused")
    kept = layer_bytes(layer, HIDDEN, how)
    return kept - BytesPerToken((float(log_sum_exp), *(0.0,) * (len(SPLITS) - 1)))


def test_a_gpt_layer_keeps_34_bytes_a_hidden_element_and_5_a_score() -> None:
    """2205.05198, equation 1: 10 of them are not divided by tensor parallelism, 24 are."""
    kept = layer_bytes(
        GPT, HIDDEN, settings(kernel="unfused", attention_dropout=True, hidden_dropout=True)
    )
    assert part(kept, "sequence") == 10 * HIDDEN
    assert part(kept, "tp") + part(kept, "kv") == 24 * HIDDEN
    assert part(kept, "scores") == 5 * HEADS


def test_a_fused_kernel_keeps_one_number_a_head_in_place_of_the_scores() -> None:
    kept = layer_bytes(GPT, HIDDEN, settings(kernel="cudnn"))
    assert part(kept, "scores") == 0
    assert part(kept, "tp") + part(kept, "kv") == 24 * HIDDEN + 4 * HEADS


def test_flash_attention_keeps_its_output_twice_where_a_micro_batch_has_several_sequences() -> None:
    assert part(layer_bytes(GPT, HIDDEN, settings(kernel="flash")), "batched") == 2 * HIDDEN


def test_grouped_queries_keep_fewer_keys_and_values_and_a_gated_mlp_gate_up_and_product() -> None:
    kept = without_statistics(LLAMA, settings())
    assert part(kept, "kv") == 2 * HIDDEN  # half the heads, keys and values
    assert part(kept, "tp") == 2 * HIDDEN + 2 * HIDDEN + 2 * 3 * 3 * HIDDEN
    assert part(kept, "sequence") == 8 * HIDDEN


def test_norms_over_queries_and_keys_keep_their_inputs() -> None:
    attention = replace(GPT.attention, qk_norm=True)
    layer = LayerSpec(attention=attention, mlp=GPT.mlp)
    more = layer_bytes(layer, HIDDEN, settings()) - layer_bytes(GPT, HIDDEN, settings())
    assert part(more, "tp") == part(more, "kv") == 2 * HIDDEN


def test_a_softmax_in_fp32_without_the_fused_kernel_keeps_fp32_probabilities() -> None:
    how = settings(kernel="unfused", fused_softmax=False, softmax_in_fp32=True)
    assert part(layer_bytes(GPT, HIDDEN, how), "scores") == (4 + 2) * HEADS
    with_dropout = replace(how, attention_dropout=True)
    assert part(layer_bytes(GPT, HIDDEN, with_dropout), "scores") == (4 + 1 + 2) * HEADS


def test_selective_recomputation_drops_scores_and_keeps_queries_keys_and_values() -> None:
    how = settings(kernel="unfused", attention_dropout=True, hidden_dropout=True)
    dropped = recomputed_bytes(GPT, HIDDEN, how, ("core_attn",))
    assert part(dropped, "scores") == 5 * HEADS
    assert sum(dropped.by_split) == 5 * HEADS


def test_recomputing_norms_drops_their_outputs() -> None:
    dropped = recomputed_bytes(GPT, HIDDEN, settings(fuses_norms=False), ("layernorm",))
    assert part(dropped, "sequence") == 4 * HIDDEN


def test_norms_that_are_part_of_a_linear_cannot_be_recomputed() -> None:
    assert sum(recomputed_bytes(GPT, HIDDEN, settings(), ("layernorm",)).by_split) == 0


def test_before_experts_a_norm_is_a_module_of_its_own() -> None:
    expert = MlpSpec(intermediate_size=HIDDEN, gated=True)
    moe = MoeSpec(num_experts=8, experts_per_token=2, expert=expert)
    layer = LayerSpec(blocks=(("self_attn", GPT.attention), ("mlp", moe)))
    dropped = recomputed_bytes(layer, HIDDEN, settings(), ("layernorm",))
    assert sum(dropped.by_split) == part(dropped, "sequence") == 2 * HIDDEN


def test_up_projections_of_latent_attention_are_made_again_with_the_latents_norms() -> None:
    attention = LatentAttentionSpec(
        num_attention_heads=HEADS,
        kv_lora_rank=8,
        q_lora_rank=16,
        qk_nope_head_dim=12,
        qk_rope_head_dim=4,
        v_head_dim=12,
    )
    layer = LayerSpec(blocks=(("self_attn", attention),))
    dropped = recomputed_bytes(layer, HIDDEN, settings(), ("mla_up_proj",))
    assert part(dropped, "sequence") == 2 * (8 + 16)
    assert part(dropped, "tp") == 2 * HEADS * (16 + 16 + 12)


def test_fp8_linears_keep_inputs_of_one_byte() -> None:
    kept = layer_bytes(GPT, HIDDEN, settings(linear_input_bytes=1))
    assert part(kept, "sequence") == (2 + 1) * 2 * HIDDEN


def test_a_checkpoint_is_one_hidden_vector() -> None:
    assert part(checkpoint_bytes(HIDDEN, settings()), "sequence") == 2 * HIDDEN


def test_every_chosen_expert_gets_a_copy_of_the_token() -> None:
    expert = MlpSpec(intermediate_size=HIDDEN, gated=True)
    moe = MoeSpec(num_experts=8, experts_per_token=2, expert=expert)
    layer = LayerSpec(blocks=(("self_attn", GPT.attention), ("mlp", moe)))
    kept = layer_bytes(layer, HIDDEN, settings())
    assert part(kept, "dispatched") == 2 * (2 * HIDDEN + 4)
    assert part(kept, "experts") == 2 * (2 * 2 * HIDDEN + 2 * HIDDEN)


def test_shared_experts_are_an_mlp_beside_the_routed_ones() -> None:
    expert = MlpSpec(intermediate_size=HIDDEN, gated=True)
    moe = MoeSpec(num_experts=8, experts_per_token=2, expert=expert, shared=expert)
    alone = replace(moe, shared=None)

    def kept(one: MoeSpec) -> BytesPerToken:
        return layer_bytes(LayerSpec(blocks=(("mlp", one),)), HIDDEN, settings())

    assert part(kept(moe) - kept(alone), "tp") == 6 * HIDDEN


def test_recomputing_a_mixture_drops_all_of_its_experts() -> None:
    expert = MlpSpec(intermediate_size=HIDDEN, gated=True)
    moe = MoeSpec(num_experts=8, experts_per_token=2, expert=expert, shared=expert)
    layer = LayerSpec(blocks=(("mlp", moe),))
    dropped = recomputed_bytes(layer, HIDDEN, settings(), ("moe",))
    assert part(dropped, "experts") == 2 * (2 * 2 * HIDDEN + 2 * HIDDEN)
    assert part(dropped, "tp") == 6 * HIDDEN
    activation = recomputed_bytes(layer, HIDDEN, settings(), ("moe_act",))
    assert sum(activation.by_split) == part(activation, "experts") == 2 * 2 * HIDDEN


def test_backward_of_attention_starts_with_what_the_mlp_kept_freed() -> None:
    in_mlp, in_attention = backward_bytes(GPT, HIDDEN, settings())
    assert part(in_mlp, "tp") == 2 * 4 * HIDDEN
    assert part(in_attention, "tp") == 2 * HIDDEN + 2 * HIDDEN - 2 * 2 * 4 * HIDDEN


def test_tensors_are_listed_by_block() -> None:
    names = [[t.name for t in block] for block in layer_tensors(GPT, HIDDEN, settings())]
    assert names[1] == ["norm.input", "norm.statistics", "norm.out", "up", "down.input"]


def test_a_state_space_mixer_is_divided_by_heads() -> None:
    mixer = MambaSpec(inner_size=2 * HIDDEN, state_size=4, conv_kernel=4, time_step_rank=4)
    kept = layer_bytes(LayerSpec(blocks=(("mixer", mixer),)), HIDDEN, settings())
    assert part(kept, "whole") == 0
    assert part(kept, "tp") > 2 * 4 * HIDDEN
    assert part(kept, "sequence") == 4 * HIDDEN
