"""One replica under traffic."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshfit.serve.asked.traffic import LengthSpec, Target, TrafficSpec
from meshfit.serve.load.loading import replica_load
from tests.serve.replicas import clock

CLOCK = clock("llama-3.1-8b", "8 H100-SXM")


def traffic(rate):
    return TrafficSpec(
        prompt=LengthSpec(median_tokens=900, p99_tokens=8000),
        output=LengthSpec(median_tokens=200, p99_tokens=1000),
        rate_per_s=rate,
    )


def load(rate, *, replicas=1, capacity=200):
    return replica_load(
        CLOCK, traffic(rate), replicas=replicas, capacity=capacity, step_tokens=8192
    )


@settings(max_examples=20, deadline=None)
@given(st.floats(0.01, 3.0))
def test_requests_end_as_fast_as_they_come(rate):
    found = load(rate)
    assert found.keeps_up
    assert found.requests_per_s == pytest.approx(rate)
    assert found.latency_s("ttft", 95) >= found.latency_s("ttft", 50)


def test_latency_and_load_grow_with_the_rate():
    loads = [load(rate) for rate in (0.5, 2.0, 4.0)]
    for figure in ("load", "tpot_s", "in_flight"):
        values = [getattr(one, figure) for one in loads]
        assert values == sorted(values)
        assert values[0] < values[-1]


def test_replicas_share_the_rate():
    assert load(4.0, replicas=4).tpot_s == pytest.approx(load(1.0).tpot_s)


def test_beyond_what_it_can_serve_no_target_is_met():
    found = load(1000.0)
    assert not found.keeps_up
    assert not found.meets(Target(metric="itl", percentile=95, limit_s=1e6))


def test_a_cache_that_holds_few_requests_saturates_earlier():
    assert load(2.0, capacity=4).load > load(2.0, capacity=200).load
