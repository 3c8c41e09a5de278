"""Prefill and decode in pools of their own, in closed form."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshfit.engines import engine_profile
from meshfit.errors import InputError
from meshfit.serve.asked.traffic import Target
from meshfit.serve.job.read import read_serving_job
from meshfit.serve.load.served import served_replica
from meshfit.serve.load.steady import waiting_steps
from meshfit.serve.load.two_pools import PoolPair, decode_pool, prefill_pool
from meshfit.serve.setting.layout import DisaggregatedLayout, ServingLayout
from meshfit.serve.simulate.deployment import predicted_deployment
from meshfit.serve.simulate.simulation import simulate

PROMPT, OUTPUT = 2000, 300
JOB = f"""
schema_version: 1
model: llama-3.1-8b
workload:
  kind: serving
  traffic: {{rate: 20/s, prompt: {PROMPT}, output: {OUTPUT}}}
cluster: 4 H100-SXM
run: {{requests: 3000}}
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    path = tmp_path_factory.mktemp("job") / "job.yaml"
    path.write_text(JOB)
    return read_serving_job(path)


@pytest.fixture(scope="module")
def pair(job):
    replica = served_replica(
        job.model,
        ServingLayout(),
        engine_profile("vllm"),
        job.topology,
        budget=job.budget(engine_profile("vllm"), job.topology.accelerator),
        request_tokens=PROMPT + OUTPUT,
    )
    return PoolPair(
        prefill=prefill_pool(replica, PROMPT),
        decode=decode_pool(replica, PROMPT, OUTPUT),
        prefill_replicas=2,
        decode_replicas=2,
    )


def under(job, pair, rate):
    return pair.under(replace(job.traffic, rate_per_s=rate))


@settings(max_examples=20, deadline=None)
@given(share=st.floats(0.05, 0.9))
def test_requests_end_as_fast_as_they_come(job, pair, share):
    rate = share * pair.most_per_s
    found = under(job, pair, rate)
    assert found.keeps_up
    assert found.load == pytest.approx(share)
    assert found.requests_per_s == pytest.approx(rate)
    assert found.in_flight == pytest.approx(rate * OUTPUT * found.tpot_s, rel=0.02)
    assert found.latency_s("ttft", 95) >= found.latency_s("ttft", 50)


def test_the_slower_pool_decides_what_both_can_end(job, pair):
    slow = replace(pair, prefill_replicas=1)
    assert slow.most_per_s == slow.prefill.requests_per_s
    assert not under(job, slow, 1.01 * slow.most_per_s).keeps_up
    target = Target(metric="ttft", percentile=95, limit_s=1e6)
    assert not under(job, slow, 1.01 * slow.most_per_s).meets(target)


def test_no_prompt_comes_between_two_tokens(job, pair):
    found = under(job, pair, 0.8 * pair.most_per_s)
    assert found.latency_s("itl", 99) == found.decode_s


@pytest.mark.parametrize("concurrency", [1, 8, 64, 2000])
def test_a_closed_loop_holds_its_requests_in_either_pool(job, pair, concurrency):
    """Little's law: requests in flight are the rate times the seconds of one."""
    traffic = replace(job.traffic, rate_per_s=None, concurrency=concurrency, arrivals="closed")
    found = pair.under(traffic)
    seconds = found.ttft_s + OUTPUT * found.tpot_s
    assert found.requests_per_s <= pair.most_per_s * 1.0001
    assert found.requests_per_s * seconds == pytest.approx(concurrency, rel=0.1)


def test_the_closed_form_agrees_with_requests_one_by_one(job, pair):
    """Steps between client and scheduler are measured ones, and no part of the simulation."""
    layout = DisaggregatedLayout(
        prefill=ServingLayout(replicas=2), decode=ServingLayout(replicas=2)
    )
    deployment = predicted_deployment(job, layout, engine_profile("vllm"), job.topology)
    traffic = replace(job.traffic, rate_per_s=0.5 * pair.most_per_s)
    simulated = simulate(deployment.pools, traffic, deployment.draw)
    found = pair.under(traffic)
    assert pair.most_per_s == pytest.approx(simulated.saturation_per_s, rel=0.1)
    assert found.tpot_s == pytest.approx(simulated.latencies["tpot"]["p50"], rel=0.15)
    between_s = (waiting_steps(pair.decode.replica.clock) - 1) * found.decode_s
    assert found.ttft_s - between_s == pytest.approx(simulated.latencies["ttft"]["p50"], rel=0.15)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (ServingLayout(tp=3), "vllm does not serve tp=3:\n"),
        (ServingLayout(tp=2, ep=2), "vllm does not serve tp=2,ep=2:\n"),
        (
            DisaggregatedLayout(prefill=ServingLayout(), decode=ServingLayout(tp=3)),
            "vllm does not serve tp=3:\n",
        ),
    ],
)
def test_a_layout_that_the_engine_refuses_is_not_simulated(job, layout, message):
    with pytest.raises(InputError, match=message):
        predicted_deployment(job, layout, engine_profile("vllm"), job.topology)
