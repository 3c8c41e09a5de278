"""Bytes of states per parameter, by the rules of ``DistributedOptimizer``."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.predict.memory.megatron.parameters import on_rank, rank_parameters
from meshfit.predict.memory.megatron.states import state_bytes
from meshfit.workload.blocks.feed_forward import MoeSpec
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec
from meshfit.workload.training import RuntimeSpec
from tests.predict.memory.megatron.builders import gpt, group

EXPERT = MlpSpec(intermediate_size=256, gated=False)
WITH_EXPERTS = LayerSpec(
    blocks=(
        ("self_attn", AttentionSpec(num_attention_heads=8, num_key_value_heads=8, head_dim=64)),
        ("mlp", MoeSpec(num_experts=8, experts_per_token=2, expert=EXPERT)),
    )
)


def per_parameter(precision: str = "bf16_mixed", **layout: int) -> tuple[float, float, float]:
    of = group(gpt(), layout, precision=precision)
    states = state_bytes(of.pipeline.ranks[0], of)
    held = on_rank(rank_parameters(of.pipeline.ranks[0], of.model), of).total[0]
    kinds = (states.weights, states.gradients, states.optimizer)
    return tuple(float(kind[0] / held) for kind in kinds)  # type: ignore[return-value]


def test_a_plain_optimizer_takes_18_bytes_a_parameter_under_bf16() -> None:
    assert per_parameter(dp_replicate=8) == (2, 4, 12)


def test_the_distributed_optimizer_shares_12_of_them_out() -> None:
    assert per_parameter(dp_shard=4) == (2, 4, 3)


def test_context_parallel_ranks_share_them_as_well() -> None:
    assert per_parameter(dp_shard=2, cp=4) == (2, 4, 1.5)


def test_every_instance_of_the_optimizer_holds_all_of_them() -> None:
    assert per_parameter(dp_replicate=2, dp_shard=4) == (2, 4, 3)


def test_gradients_stay_in_fp16_and_no_master_copy_is_made_in_fp32() -> None:
    assert per_parameter("fp16_mixed", dp_replicate=2) == (2, 2, 12)
    assert per_parameter("fp32", dp_replicate=2) == (4, 4, 8)


def test_fp8_linears_have_two_more_bytes_unless_parameters_are_gathered_in_fp8() -> None:
    runtimes = (RuntimeSpec(fp8_parameters=gathered) for gathered in (False, True))
    groups = [group(gpt(), {}, precision="fp8_mixed", runtime=runtime) for runtime in runtimes]
    cached, gathered = (state_bytes(of.pipeline.ranks[0], of).weights[0] for of in groups)
    assert cached - gathered == 2 * 12 * 12 * 512 * 512


def test_megatron_fsdp_shares_gradients_and_parameters_out_too() -> None:
    assert per_parameter(dp_shard=4, zero_stage=2) == (2, 1, 3)
    assert per_parameter(dp_shard=4, zero_stage=3) == (0.5, 1, 3)


def test_the_vocabulary_is_padded_to_128_rows_a_rank() -> None:
    """50,257 rows: 50,304 on one rank, 50,432 over two."""
    whole = group(gpt(num_layers=1), {"tp": 1})
    halves = group(gpt(num_layers=1), {"tp": 2, "dp_replicate": 4})
    counted = rank_parameters(whole.pipeline.ranks[0], whole.model)
    assert counted.vocabulary_rows == 512
    rest = counted.replicated + counted.sharded + counted.key_value
    assert on_rank(counted, whole).total[0] == 50_304 * 512 + rest
    on_half = counted.replicated + (counted.sharded + counted.key_value) / 2
    assert on_rank(counted, halves).total[0] == 50_432 / 2 * 512 + on_half


def test_a_tied_head_is_a_copy_on_the_last_stage() -> None:
    of = group(gpt(), {"pp": 2, "dp_replicate": 4})
    first, last = (rank_parameters(shape, of.model) for shape in of.pipeline.ranks)
    assert first.vocabulary_rows == last.vocabulary_rows == 512


def test_experts_are_divided_by_ep_and_etp_and_not_by_tp() -> None:
    model = gpt(num_layers=1, layer=WITH_EXPERTS)
    layouts = ({"tp": 2, "dp_shard": 4, "ep": 4, "etp": 1}, {"tp": 2, "dp_shard": 4, "etp": 2})
    held = on_rank(
        rank_parameters(group(model, *layouts).pipeline.ranks[0], model), group(model, *layouts)
    )
    experts = 8 * 2 * 256 * 512
    assert held.experts.tolist() == [experts / 4, experts / 2]
    assert held.dense[0] == held.dense[1]


def test_states_of_experts_are_shared_out_over_their_own_group() -> None:
    """Four data-parallel ranks times tp 2 over ep 4: two hold the same expert."""
    model = gpt(num_layers=1, layer=WITH_EXPERTS)
    of = group(model, {"tp": 2, "dp_shard": 4, "ep": 4, "etp": 1})
    shape = of.pipeline.ranks[0]
    held = on_rank(rank_parameters(shape, model), of)
    expected = 12 * (held.dense[0] / 4 + held.experts[0] / 2)
    assert state_bytes(shape, of).optimizer[0] == pytest.approx(expected)


@given(shard=st.sampled_from([1, 2, 4, 8]), tp=st.sampled_from([1, 2, 4]))
def test_weights_do_not_depend_on_the_distributed_optimizer(shard: int, tp: int) -> None:
    of = group(gpt(), {"dp_shard": shard, "tp": tp}, {"dp_replicate": shard, "tp": tp})
    weights = state_bytes(of.pipeline.ranks[0], of).weights
    assert np.all(weights == weights[0])
