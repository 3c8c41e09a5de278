from dataclasses import replace

import pytest

from meshfit.engines.megatron.profile import MEGATRON
from meshfit.engines.native.profile import NATIVE
from meshfit.predict.costs.rates import rates
from meshfit.predict.time.compute import layer_time
from meshfit.predict.time.work import (
    Matmul,
    ScanMixing,
    SoftmaxMixing,
    block_matmuls,
    block_mixing,
    layer_work,
)
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.feed_forward import MlpSpec, MoeSpec
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.blocks.state_space import Mamba2Spec
from meshfit.workload.model import LayerSpec
from tests.predict.builders import BF16, cluster, group, llama_8b, training

ATTENTION = AttentionSpec(num_attention_heads=32, num_key_value_heads=8, head_dim=128)
GATED = MlpSpec(intermediate_size=14_336, gated=True)


def flops(matmuls):
    return sum(2 * one.inputs * one.outputs * one.used for one in matmuls)


def test_grouped_queries_make_narrow_keys():
    assert block_matmuls(ATTENTION, 4096) == (
        Matmul(inputs=4096, outputs=4096, split="column"),
        Matmul(inputs=4096, outputs=1024, split="column"),
        Matmul(inputs=4096, outputs=1024, split="column"),
        Matmul(inputs=4096, outputs=4096, split="row"),
    )


def test_a_gated_mlp_has_three_matmuls_and_a_plain_one_two():
    assert len(block_matmuls(GATED, 4096)) == 3
    assert len(block_matmuls(MlpSpec(intermediate_size=16_384, gated=False), 4096)) == 2


def test_equal_matmuls_of_a_layer_are_counted():
    work = layer_work(LayerSpec(attention=ATTENTION, mlp=GATED), 4096)
    counts = {(one.inputs, one.outputs): times for one, times in work.matmuls}
    assert counts[4096, 14_336] == 2
    assert counts[4096, 1024] == 2
    assert work.last == Matmul(inputs=14_336, outputs=4096, split="row")


def test_a_token_uses_some_of_the_experts():
    moe = MoeSpec(num_experts=64, experts_per_token=8, expert=GATED)
    routed = [one for one in block_matmuls(moe, 4096) if one.experts > 1]
    assert {(one.experts, one.used) for one in routed} == {(64, 8)}
    assert flops(routed) == 8 * flops(block_matmuls(GATED, 4096))


def test_a_router_stays_out_of_fp8():
    moe = MoeSpec(num_experts=64, experts_per_token=8, expert=GATED)
    assert [one.outputs for one in block_matmuls(moe, 4096) if not one.in_linear] == [64]


def test_latent_attention_computes_on_expanded_heads():
    latent = LatentAttentionSpec(
        num_attention_heads=128, kv_lora_rank=512, qk_nope_head_dim=128,
        qk_rope_head_dim=64, v_head_dim=128, q_lora_rank=1536,
    )  # fmt: skip
    mixing = block_mixing(latent)
    assert isinstance(mixing, SoftmaxMixing)
    assert (mixing.head_dim, mixing.value_dim) == (192, 128)


def test_a_state_space_mixer_is_a_scan_and_an_mlp_mixes_nothing():
    mamba = Mamba2Spec(num_heads=64, head_dim=64, state_size=128, num_groups=8, conv_kernel=4)
    assert isinstance(block_mixing(mamba), ScanMixing)
    assert block_mixing(GATED) is None
    assert all(len((one.inputs, one.outputs)) == 2 for one in block_matmuls(mamba, 4096))


def test_megatron_divides_the_projections_of_a_recurrence_and_pytorch_does_not():
    mamba = Mamba2Spec(num_heads=64, head_dim=64, state_size=128, num_groups=8, conv_kernel=4)
    first, last = block_matmuls(mamba, 4096)
    assert (first.split, last.split) == ("column", "row")
    assert first.of_mixer
    model = replace(llama_8b(), layers=(LayerSpec(blocks=(("mixer", mamba),)),) * 4)
    ratio = {}
    for profile in (MEGATRON, NATIVE):
        of = group(model, training(precision=BF16), {"tp": 1}, {"tp": 8}, profile=profile)
        time = layer_time(model.layers[0], of, rates(cluster().accelerator, "bf16_mixed"))
        ratio[profile.name] = time.matmuls[0] / time.matmuls[1]
    assert ratio["megatron"] > 4
    assert ratio["native"] == pytest.approx(1)
