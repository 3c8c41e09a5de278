"""Plans of serving jobs: every layout, and which of them are worth a look."""

from dataclasses import replace

import pytest

from meshfit.errors import InputError
from meshfit.report.serving.plan import serving_plan_document
from meshfit.serve.job.read import read_serving_job
from meshfit.serve.plan.planning import make_serving_plan
from meshfit.serve.plan.rows import capacity_per_gpu
from meshfit.serve.setting.layout import DisaggregatedLayout, ServingLayout

JOB = """
schema_version: 1
model: llama-3.1-70b
workload:
  kind: serving
  traffic: {rate: 4/s, prompt: {median: 900, p99: 8000}, output: {median: 200, p99: 1000}}
  targets: {ttft: {p95: 1500 ms}, itl: {p95: 120 ms}}
  quantization: {weights: fp8}
cluster: 8 H100-SXM
engine: vllm
price: 2.5 USD/GPU-h
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    (folder / "job.yaml").write_text(JOB)
    return read_serving_job(folder)


@pytest.fixture(scope="module")
def plan(job):
    return make_serving_plan(job)


def row_of(plan, **degrees):
    return next(row for row in plan.rows if row.layout == ServingLayout(**degrees))


def test_every_layout_is_a_row_and_what_does_not_fit_comes_last(plan):
    assert len(plan.of_one_pool) == 10
    verdicts = [row.verdict for row in plan.rows]
    assert verdicts[-1] == "does_not_fit"
    assert row_of(plan, replicas=8).memory.margin_bytes < 0
    assert plan.meets_targets


def test_one_more_degree_of_tp_buys_latency_and_costs_throughput(plan):
    for degrees in ({"replicas": 4, "tp": 2}, {"replicas": 2, "tp": 4}):
        wider = row_of(plan, **degrees).wider
        assert wider.tpot < 1
        assert wider.ttft < 1
        assert wider.tokens_per_s_per_gpu < 1
        assert wider.kv_tokens > 1
    assert row_of(plan, tp=8).wider is None


def test_no_row_of_the_front_is_beaten_and_every_other_is(plan):
    def scores(row):
        load = row.load
        return (load.latency_s("ttft", 95), load.tpot_s, -capacity_per_gpu(row))

    keeping_up = [row for row in plan.fitting if row.load.keeps_up]
    front = [row for row in keeping_up if row.is_on_front]
    assert 1 < len(front) < len(keeping_up)
    for row in keeping_up:
        beaten = any(
            other is not row
            and all(a <= b for a, b in zip(scores(other), scores(row), strict=True))
            for other in keeping_up
        )
        assert beaten is not row.is_on_front


def test_pipelines_say_that_nothing_measured_stands_behind_them(plan):
    assert row_of(plan, tp=4, pp=2).notes == ("pp: no measured server behind it",)
    assert row_of(plan, tp=8).notes == ()


def test_two_pools_are_rows_beside_the_others(plan):
    pairs = [row for row in plan.rows if isinstance(row.layout, DisaggregatedLayout)]
    assert pairs
    for row in pairs:
        assert row.layout.num_accelerators == 8
        assert row.load.latency_s("itl", 99) == row.load.decode_s
        assert row.prefill_memory.memory.weights > 0
        assert any(note.startswith("two pools: behind them stand 65") for note in row.notes)
    same_tp = row_of(plan, replicas=4, tp=2).load.latency_s("itl", 99)
    assert next(r for r in pairs if r.layout.decode.tp == 2).load.latency_s("itl", 99) < same_tp


def test_decoding_waits_for_memory_and_prompts_for_arithmetic(plan):
    row = row_of(plan, replicas=4, tp=2)
    assert row.decode_bound.name == "memory bandwidth"
    assert row.prefill_bound.name == "compute"
    bound = row.decode_bound
    assert bound.compute + bound.memory + bound.communication + bound.host == pytest.approx(1)


def test_a_price_is_that_of_the_tokens_that_are_served(plan):
    row = row_of(plan, tp=8)
    per_hour = row.tokens_per_s_per_gpu * 3600
    assert row.price_per_million_tokens == pytest.approx(2.5 / per_hour * 1e6)


def test_overload_is_named_and_has_no_latency(job):
    flooded = replace(job, traffic=replace(job.traffic, rate_per_s=400.0))
    row = make_serving_plan(flooded).rows[0]
    assert row.verdict == "saturated"
    assert row.load.load > 1
    assert row.load.latency_s("ttft", 95) == float("inf")


def test_auto_takes_the_fewest_accelerators_that_meet_the_targets(job):
    asked = replace(job, topology=None, accelerator="H100-SXM")
    plan = make_serving_plan(asked)
    assert plan.meets_targets
    assert plan.tried[plan.accelerators] > 0
    assert all(met == 0 for count, met in plan.tried.items() if count < plan.accelerators)
    assert 1 < plan.accelerators < 8


def test_auto_without_targets_is_refused(job):
    with pytest.raises(InputError, match="there are none; write targets"):
        make_serving_plan(replace(job, topology=None, targets=()))


def test_a_closed_loop_shares_its_requests_out(job):
    traffic = replace(job.traffic, rate_per_s=None, concurrency=64, arrivals="closed")
    plan = make_serving_plan(replace(job, traffic=traffic))
    assert row_of(plan, replicas=2, tp=4).load.in_flight == pytest.approx(32)
    assert row_of(plan, tp=8).load.in_flight == pytest.approx(64)


def test_the_document_has_the_published_keys(plan):
    document = serving_plan_document(plan)
    for candidate in document["candidates"]:
        assert {
            "layout", "memory", "kv_tokens", "concurrency", "ttft", "tpot",
            "tokens_per_s_per_gpu", "verdict",
        } <= candidate.keys()  # fmt: skip
        assert {"weights", "kv_cache", "workspace", "communication", "unattributed"} <= candidate[
            "memory"
        ].keys()
    assert document["pareto_front"]
