from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshfit.cluster.catalogue import accelerator
from meshfit.engines.native.profile import NATIVE
from meshfit.predict.estimate import estimate
from meshfit.predict.time.terms import TERMS
from meshfit.workload.counts import training_flops_per_token
from meshfit.workload.training import RuntimeSpec
from tests.predict.builders import BF16, WITHOUT_HOST, cluster, layouts, llama, llama_8b, training

COLUMN = {name: index for index, name in enumerate(TERMS)}


def terms(*keys, model=None, spec=None, topology=None, profile=WITHOUT_HOST):
    spec = spec or training(sequence_length=2048, global_batch_size=64, precision=BF16)
    found = estimate(
        model or llama_8b(), spec, topology or cluster(nodes=8), layouts(*keys), profile
    )
    return [
        {name: row[column] for name, column in COLUMN.items() if row[column] > 0}
        for row in found.time_terms
    ]


@pytest.mark.parametrize(
    ("keys", "exposed"),
    [
        ({}, set()),
        ({"dp_replicate": 64}, {"all_reduce.dp_replicate"}),
        ({"dp_shard": 64}, {"all_gather.dp_shard", "reduce_scatter.dp_shard"}),
        (
            {"dp_shard": 8, "dp_replicate": 8},
            {"all_gather.dp_shard", "reduce_scatter.dp_shard", "all_reduce.dp_replicate"},
        ),
        ({"dp_shard": 64, "zero_stage": 1}, {"all_reduce.dp_shard", "broadcast.dp_shard"}),
        ({"tp": 8}, {"all_gather.tp", "reduce_scatter.tp", "all_reduce.tp"}),
        ({"tp": 8, "sp": False}, {"all_reduce.tp"}),
        ({"pp": 4}, {"send_recv.pp"}),
        ({"cp": 2, "cp_method": "all_to_all"}, {"all_to_all.cp", "all_reduce.dp_replicate"}),
    ],
    ids=["single", "ddp", "fsdp", "hsdp", "zero1", "tp+sp", "tp", "pp", "cp"],
)
def test_each_strategy_exposes_its_own_collectives(keys, exposed):
    (found,) = terms(keys)
    assert {name for name in found if "." in name} == exposed


def test_sharded_collectives_are_paid_per_micro_batch_and_replicas_once_a_step():
    slow = replace(WITHOUT_HOST, overlap_fraction=0.0)
    few, many = terms(
        {"dp_shard": 8, "dp_replicate": 8, "micro_batch_size": 1},
        {"dp_shard": 8, "dp_replicate": 4, "micro_batch_size": 1},
        profile=slow,
    )
    # half the ranks take twice the micro-batches
    for name in ("all_gather.dp_shard", "reduce_scatter.dp_shard"):
        assert many[name] == pytest.approx(2 * few[name])
    assert many["all_reduce.dp_replicate"] < few["all_reduce.dp_replicate"]


def test_keeping_parameters_gathered_saves_the_gather_of_backward():
    kept, freed = terms(
        {"dp_shard": 64, "zero_stage": 2},
        {"dp_shard": 64, "zero_stage": 3},
        profile=replace(WITHOUT_HOST, overlap_fraction=0.0),
    )
    assert kept["all_gather.dp_shard"] < freed["all_gather.dp_shard"]
    assert kept["reduce_scatter.dp_shard"] == pytest.approx(freed["reduce_scatter.dp_shard"])


def test_computation_hides_data_parallel_communication():
    keys = {"dp_shard": 64}
    (hidden,) = terms(keys)
    (shown,) = terms(keys, profile=replace(WITHOUT_HOST, overlap_fraction=0.0))
    assert hidden["all_gather.dp_shard"] < shown["all_gather.dp_shard"]
    assert hidden["compute"] == shown["compute"]


def test_cpu_ranks_hide_nothing():
    keys, cpu_ranks = {"dp_shard": 8}, cluster(device_type="cpu")
    (on_cpu,) = terms(keys, topology=cpu_ranks)
    (shown,) = terms(keys, topology=cpu_ranks, profile=replace(WITHOUT_HOST, overlap_fraction=0.0))
    assert on_cpu == shown
    (on_gpu,) = terms(keys, topology=cluster(), profile=replace(WITHOUT_HOST, overlap_fraction=0.0))
    # Gloo scatters by an all-reduce
    assert on_cpu.pop("reduce_scatter.dp_shard") > on_gpu.pop("reduce_scatter.dp_shard")
    assert on_cpu.keys() == on_gpu.keys()
    assert on_cpu["compute"] == on_gpu["compute"]


def test_recomputation_adds_one_forward_and_its_collectives():
    """But for the sum behind a layer's last block, which no backward reads."""
    plain, again = terms({"tp": 8}, {"tp": 8, "recompute": "full"})
    assert 0.15 < again["recompute"] / plain["compute"] < 0.34
    assert again["compute"] == plain["compute"]
    blocks, again_per_layer = 32 * 2 * 2, 32
    ends = 2
    sums = again["reduce_scatter.tp"] / plain["reduce_scatter.tp"]
    assert sums == pytest.approx((blocks + again_per_layer + ends) / (blocks + ends))
    assert 1.4 < again["all_gather.tp"] / plain["all_gather.tp"] < 1.5


@given(pp=st.sampled_from([2, 4, 8]), global_batch_size=st.sampled_from([8, 16, 64]))
def test_the_bubble_of_equal_stages_is_the_formula(pp, global_batch_size):
    """Equal stages: a model whose ends cost next to nothing."""
    model = llama(hidden_size=1024, heads=8, num_layers=8, intermediate_size=4096, vocab_size=1)
    spec = training(sequence_length=2048, global_batch_size=global_batch_size)
    fast = replace(cluster().levels[0], bandwidth_bytes_per_s=1e30, latency_s=0.0)
    topology = replace(cluster(), levels=(fast,))
    (found,) = terms({"pp": pp, "schedule": "gpipe"}, model=model, spec=spec, topology=topology)
    share = found["bubble"] / (found["bubble"] + found["compute"])
    assert share == pytest.approx((pp - 1) / (global_batch_size + pp - 1), rel=5e-3)


def test_the_slowest_stage_decides_an_uneven_pipeline():
    model = llama(hidden_size=1024, heads=8, num_layers=8, intermediate_size=4096)
    spec = training(sequence_length=2048, global_batch_size=64)
    even, uneven = terms({"pp": 4}, {"pp": 4, "stage_layers": (1, 2, 4, 1)}, model=model, spec=spec)
    assert uneven["compute"] == pytest.approx(2 * even["compute"], rel=0.1)


def test_a_rank_order_that_spreads_tensor_parallelism_over_nodes_costs_their_bandwidth():
    keys = {"tp": 8, "dp_replicate": 8}
    (inside,) = terms(keys)
    outermost = ("tp", "pp", "dp_replicate", "dp_shard", "cp")
    (across,) = terms(keys, profile=replace(WITHOUT_HOST, rank_order=outermost))
    assert 7 < across["reduce_scatter.tp"] / inside["reduce_scatter.tp"] < 9


def test_every_term_is_finite_and_not_negative():
    keys = [{"dp_shard": s, "tp": t} for s in (1, 2, 8) for t in (1, 2, 8)]
    found = estimate(
        llama_8b(),
        training(global_batch_size=64, precision=BF16),
        cluster(nodes=8),
        layouts(*keys),
        NATIVE,
    )
    assert np.isfinite(found.time_terms).all()
    assert (found.time_terms >= 0).all()


@given(
    tp=st.sampled_from([1, 2, 8]),
    pp=st.sampled_from([1, 2, 8]),
    dp=st.sampled_from([1, 8]),
    recompute=st.sampled_from(["none", "full"]),
    kind=st.sampled_from(["A100-SXM4-80", "H100-SXM5-80", "B200-SXM-180"]),
)
@settings(deadline=None, max_examples=40)
def test_no_layout_computes_faster_than_the_peak(tp, pp, dp, recompute, kind):
    """Model FLOPs over the whole step's time on so many ranks, attention below the diagonal only."""
    spec = training(sequence_length=4096, global_batch_size=64, precision=BF16)
    model, chip = llama_8b(), accelerator(kind)
    topology = replace(cluster(nodes=64), accelerator=chip)
    keys = {"tp": tp, "pp": pp, "dp_shard": dp, "micro_batch_size": 4, "recompute": recompute}
    found = estimate(model, spec, topology, layouts(keys), WITHOUT_HOST)
    flops = training_flops_per_token(model, 4096) * spec.tokens_per_step
    peak = chip.peak_flops_per_s["bf16"] * tp * pp * dp
    assert flops / found.step_middle_s[0] < peak


def test_the_share_that_communication_takes_of_an_accelerator_is_lost_while_it_runs():
    topology = replace(cluster(nodes=8), accelerator=accelerator("H100-SXM5-80"))
    keys = {"dp_shard": 64, "micro_batch_size": 1}
    few, many = (
        terms(
            keys,
            topology=topology,
            spec=training(
                sequence_length=8192,
                global_batch_size=64,
                precision=BF16,
                runtime=RuntimeSpec(communication_sms=share),
            ),
        )[0]["all_gather.dp_shard"]
        for share in (0.05, 0.3)
    )
    assert few < many
