"""Against what Megatron-Core's own tests record: bytes allocated at rest and at the peak, of the last
rank, at commit d98e8a6 of NVIDIA/Megatron-LM (``tests/functional_tests``)."""

from dataclasses import replace
from typing import Any

import pytest

from meshfit.predict.memory.megatron.memory import MOMENTS, rank_memory, rest_bytes
from meshfit.predict.shape.group import LayoutGroup
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.model import LayerSpec, MlpSpec
from meshfit.workload.training import RuntimeSpec
from tests.predict.memory.megatron.builders import MIB, gpt, group

UNFUSED = RuntimeSpec(attention="unfused", fused_gradient_accumulation=False)


def last_rank(of: LayoutGroup) -> tuple[float, float]:
    """Bytes at the peak and at rest."""
    shape = of.pipeline.ranks[-1]
    return float(rank_memory(shape, of).allocated[0]), float(rest_bytes(shape, of)[0])


SHARDED = {"dp_shard": 8}
ON_ONE_STAGE: dict[str, tuple[LayoutGroup, int, int]] = {
    "unfused attention": (group(gpt(), SHARDED, runtime=UNFUSED), 4_673_069_568, 552_128_512),
    "FlashAttention 2": (group(gpt(), SHARDED), 2_711_714_304, 552_128_512),
    "cuDNN's attention": (group(gpt(), SHARDED, gpu="H100-SXM5-80"), 2_690_742_784, 581_488_640),
    "its own layers": (
        group(gpt(), SHARDED, transformer_engine=False),
        4_735_983_616,
        615_042_560,
    ),
    "its own layers in fp16": (
        group(gpt(), SHARDED, transformer_engine=False, precision="fp16_mixed"),
        4_607_767_040,
        518_880_768,
    ),
}


@pytest.mark.parametrize("name", ON_ONE_STAGE)
def test_one_stage_is_predicted_to_a_quarter_of_a_mebibyte(name: str) -> None:
    of, peak, rest = ON_ONE_STAGE[name]
    predicted_peak, predicted_rest = last_rank(of)
    assert predicted_rest == pytest.approx(rest, abs=MIB / 64)
    assert predicted_peak == pytest.approx(peak, abs=MIB / 4)


def test_full_recomputation_keeps_one_input_a_layer() -> None:
    of = group(gpt(), {"dp_replicate": 8, "recompute": "full"}, runtime=UNFUSED)
    peak, rest = last_rank(of)
    assert peak - rest == pytest.approx(2_534_070_272 - 1_232_487_936, abs=MIB / 4)


def test_seven_billion_parameters_over_tensor_parallel_ranks() -> None:
    model = gpt(
        hidden_size=4096,
        num_layers=32,
        heads=32,
        kv_heads=8,
        sequence_length=8192,
        vocab_size=131_073,
        tied=False,
    )
    layout = {"dp_shard": 2, "tp": 4, "micro_batch_size": 2}
    of = group(model, layout, sequence_length=8192, global_batch_size=8, gpu="H100-SXM5-80")
    assert last_rank(of)[0] == pytest.approx(57_143_791_616, rel=2e-4)


def test_interleaved_pipeline_with_a_distributed_optimizer() -> None:
    layout = {"dp_shard": 2, "pp": 4, "vpp": 3}
    of = group(gpt(), layout, gpu="H100-SXM5-80", runtime=UNFUSED)
    assert last_rank(of)[0] == pytest.approx(3_942_493_696, rel=1e-3)


def test_latent_attention() -> None:
    attention = LatentAttentionSpec(
        num_attention_heads=8,
        q_lora_rank=192,
        kv_lora_rank=64,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=16,
        bias=True,
    )
    mlp = MlpSpec(intermediate_size=2048, gated=False, bias=True)
    layer = LayerSpec(blocks=(("self_attn", attention), ("mlp", mlp)))
    model = gpt(num_layers=4, layer=layer, tied=False)
    of = group(model, {"dp_replicate": 2, "tp": 2, "pp": 2, "sp": True}, runtime=UNFUSED)
    assert last_rank(of)[0] == pytest.approx(1_216_200_192, rel=2e-3)


def test_megatron_fsdp_holds_the_embedding_and_two_layers_whole() -> None:
    layout = {"dp_shard": 4, "tp": 2, "zero_stage": 3}
    of = group(gpt(), layout, gpu="H100-SXM5-80")
    peak, rest = last_rank(of)
    assert rest == pytest.approx(246_999_552, rel=5e-3)
    assert peak == pytest.approx(1_469_652_992, rel=2e-3)


def test_the_compiled_loss_makes_one_more_fp32_copy() -> None:
    def peak(loss: Any) -> float:
        runtime = replace(UNFUSED, loss=loss)
        return last_rank(group(gpt(), {"tp": 2, "pp": 2, "dp_replicate": 2}, runtime=runtime))[0]

    entries = 4 * 1024 * 50_432 / 2
    assert peak("fused") - peak(None) == entries * 4


def test_the_peak_of_a_large_vocabulary_is_at_the_loss() -> None:
    of = group(gpt(), SHARDED)
    (moment,) = rank_memory(of.pipeline.ranks[0], of).moment
    assert MOMENTS[moment] == "loss"
