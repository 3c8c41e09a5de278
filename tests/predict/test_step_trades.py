"""What makes a step longer or shorter, on an accelerator of the catalogue."""

from dataclasses import replace

import numpy as np
import pytest

from meshfit.cluster.catalogue import accelerator
from meshfit.cluster.topology import Topology
from meshfit.engines.megatron.profile import MEGATRON
from meshfit.engines.native.profile import NATIVE
from meshfit.predict.estimate import estimate
from meshfit.predict.time.terms import TERMS
from meshfit.workload.model import LayerSpec, MlpSpec, MoeSpec
from meshfit.workload.training import PRECISIONS, RuntimeSpec
from tests.predict.builders import BF16, WITHOUT_HOST, cluster, layouts, llama_8b, training


def h100s(nodes: int = 8, **changes: object) -> Topology:
    spec = replace(accelerator("H100-SXM5-80"), **changes)
    return replace(cluster(nodes=nodes), accelerator=spec)


def found(*keys, profile=MEGATRON, topology=None, sequence_length=8192, batch=512, **runtime):
    spec = training(
        sequence_length=sequence_length,
        global_batch_size=batch,
        precision=runtime.pop("precision", BF16),
        runtime=RuntimeSpec(**runtime),
    )
    return estimate(llama_8b(), spec, topology or h100s(), layouts(*keys), profile)


def steps(*keys, **given):
    return found(*keys, **given).step_middle_s.tolist()


def term(estimates, name, row=0):
    return float(estimates.time_terms[row, TERMS.index(name)])


def test_accumulation_at_a_fixed_batch_costs_sharded_gathers_and_fills_pipelines():
    """With more micro-batches full sharding gathers more often, tensor parallelism the same, and
    the pipeline's bubble shrinks: the order of the three turns."""
    keys = ({"dp_shard": 64}, {"tp": 8, "dp_replicate": 8}, {"pp": 8, "dp_replicate": 8})
    slow = replace(h100s().levels[1], bandwidth_bytes_per_s=2e9)
    topology = replace(h100s(), levels=(h100s().levels[0], slow))
    fsdp_only = [{**keys[0], "micro_batch_size": size} for size in (8, 1)]
    few, many = steps(*fsdp_only, topology=topology, profile=WITHOUT_HOST)
    assert many > 3 * few
    tensor = [{**keys[1], "micro_batch_size": size} for size in (8, 1)]
    few_tp, many_tp = steps(*tensor, topology=topology, profile=WITHOUT_HOST)
    assert many_tp < 1.3 * few_tp
    pipeline = [{**keys[2], "micro_batch_size": size} for size in (8, 1)]
    bubbles = found(*pipeline, topology=topology, profile=WITHOUT_HOST)
    assert term(bubbles, "bubble", 0) > 4 * term(bubbles, "bubble", 1)
    assert few < many_tp < many


def test_recomputation_costs_more_the_more_is_run_again():
    """By PyTorch's policies; Megatron-Core's ``operations`` are the parts that it is given."""
    policies = ["none", "selective", "operations", "full"]
    keys = ({"tp": 2, "dp_replicate": 32, "recompute": name} for name in policies)
    again = found(*keys, profile=NATIVE)
    recomputed = [term(again, "recompute", row) for row in range(4)]
    assert recomputed[0] == 0
    assert recomputed == sorted(recomputed)
    assert len(set(recomputed)) == 4


def test_every_second_layer_and_half_the_layers_of_a_stage_cost_half_of_all():
    keys = {"dp_replicate": 64}
    policies = [("full", 1), ("alternate", 2), ("block", 16)]
    again = found(
        *({**keys, "recompute": name, "recompute_layers": every} for name, every in policies)
    )
    whole, every_second, first_half = (term(again, "recompute", row) for row in range(3))
    assert every_second == pytest.approx(whole / 2)
    assert first_half == pytest.approx(whole / 2)


def test_pytorch_stops_recomputing_before_the_last_matmul():
    keys = {"dp_shard": 64, "recompute": "full"}
    early = found(keys, profile=replace(NATIVE, recomputes_what_is_needed=True))
    whole = found(keys, profile=replace(NATIVE, recomputes_what_is_needed=False))
    assert 0.65 < term(early, "recompute") / term(whole, "recompute") < 0.85


def test_cutting_tensor_parallel_collectives_hides_most_of_them():
    keys = {"tp": 8, "dp_replicate": 8}
    plain, cut = (found(keys, overlap_tensor_parallel=flag) for flag in (False, True))
    assert term(cut, "all_gather.tp") < 0.5 * term(plain, "all_gather.tp")
    assert term(cut, "compute") == term(plain, "compute")


def test_overlapping_gradients_hides_their_sum():
    keys = {"dp_shard": 64, "zero_stage": 1, "micro_batch_size": 8}
    shown, hidden = (found(keys, overlap_gradients=flag) for flag in (False, True))
    assert term(hidden, "reduce_scatter.dp_shard") < term(shown, "reduce_scatter.dp_shard")


def test_fp8_is_faster_than_bf16_and_casts_keep_it_below_twice():
    keys = {"tp": 2, "dp_replicate": 32}
    (bf16,), (fp8,) = steps(keys), steps(keys, precision=PRECISIONS["fp8_mixed"])
    assert 1.2 < bf16 / fp8 < 2


def test_compiling_saves_passes_over_memory():
    (eager,), (compiled,) = (
        steps({"dp_shard": 64}, profile=NATIVE, compile=flag) for flag in (False, True)
    )
    assert compiled < eager


def test_a_power_limit_slows_a_step():
    (full,), (limited,) = (
        steps({"dp_shard": 64}, topology=h100s(power_limit_w=watts)) for watts in (None, 500.0)
    )
    assert 1.05 < limited / full < 1.3


def test_unfused_attention_is_slower_than_a_fused_kernel_and_more_so_for_long_sequences():
    ratio = []
    for length in (2048, 8192):
        (fused,), (unfused,) = (
            steps({"dp_replicate": 64}, attention=kernel, sequence_length=length)
            for kernel in ("cudnn", "unfused")
        )
        ratio.append(unfused / fused)
    assert 1 < ratio[0] < ratio[1]


def test_stragglers_grow_with_the_nodes():
    few = found({"dp_replicate": 16}, topology=h100s(2), batch=128)
    many = found({"dp_replicate": 64}, topology=h100s(8), batch=512)
    assert 0 < term(few, "other") < term(many, "other")


def test_a_faster_network_is_never_slower():
    keys = [{"dp_shard": 64}, {"tp": 8, "dp_shard": 8}, {"pp": 8, "dp_replicate": 8}]
    slow = h100s()
    fast = replace(
        slow, levels=(slow.levels[0], replace(slow.levels[1], bandwidth_bytes_per_s=400e9))
    )
    assert (np.array(steps(*keys, topology=fast)) <= np.array(steps(*keys, topology=slow))).all()


def test_the_interval_widens_with_what_is_not_hidden():
    estimates = found({"dp_replicate": 64}, {"tp": 8, "dp_replicate": 8}, profile=NATIVE)
    spread = estimates.step_high_s / estimates.step_middle_s
    assert 1.02 < spread[0] < spread[1] < 1.6


def test_an_unmeasured_chip_has_a_wider_interval():
    v100 = replace(cluster(nodes=8), accelerator=accelerator("V100-SXM2-32"))
    keys = {"dp_replicate": 64}
    of_v100 = found(keys, topology=v100, precision=PRECISIONS["fp16_mixed"])
    of_h100 = found(keys)
    widths = [e.step_high_s[0] / e.step_middle_s[0] for e in (of_v100, of_h100)]
    assert widths[0] > widths[1]


def test_offloaded_states_are_stepped_by_the_host():
    kept = found({"dp_shard": 64}, {"dp_shard": 64, "offload": "cpu"}, profile=NATIVE)
    away = term(kept, "optimizer", 1)
    parameters = 8.03e9 / 64
    # gradients (4 B) out and 16-bit parameters back; 28 B an element at an eighth of the host's rate
    link = accelerator("H100-SXM5-80").host_link_bytes_per_s
    expected = parameters * (6 / link + 28 / (200e9 / 8))
    assert away == pytest.approx(expected, rel=0.01)
    assert away > 10 * term(kept, "optimizer", 0)


def test_offloaded_activations_cost_something_even_under_computation():
    kept = found({"dp_shard": 64}, {"dp_shard": 64, "offload": "activations"}, profile=NATIVE)
    assert term(kept, "other", 1) > term(kept, "other", 0)


def test_offloaded_activations_show_where_the_link_is_slower_than_computation():
    keys = {"dp_shard": 8, "zero_stage": 1, "recompute": "none", "offload": "activations"}
    plain = cluster()
    link = replace(plain, accelerator=replace(plain.accelerator, host_link_bytes_per_s=1e9))
    fast, slow = (found(keys, topology=one, profile=MEGATRON) for one in (plain, link))
    assert term(slow, "other") > 10 * term(fast, "other")


def test_a_fuller_expert_rank_slows_the_step():
    moe = MoeSpec(
        num_experts=8, experts_per_token=2, expert=MlpSpec(intermediate_size=14_336, gated=True)
    )
    attention = llama_8b().layers[0].attention
    layer = LayerSpec(blocks=(("self_attn", attention), ("mlp", moe)))
    model = replace(llama_8b(), layers=(layer,) * 8)
    seconds = []
    for imbalance in (1.0, 1.5):
        spec = training(
            sequence_length=4096,
            global_batch_size=64,
            precision=BF16,
            runtime=RuntimeSpec(expert_imbalance=imbalance),
        )
        keys = layouts({"ep": 8, "dp_shard": 8, "zero_stage": 1})
        seconds.append(estimate(model, spec, h100s(1), keys, MEGATRON).step_middle_s[0])
    assert 1.1 < seconds[1] / seconds[0] < 1.5
