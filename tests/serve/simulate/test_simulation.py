from dataclasses import replace

import pytest

from meshfit.errors import InputError
from meshfit.serve.asked.traffic import LengthSpec, Target, TrafficSpec
from meshfit.serve.simulate.arrivals import Draw
from meshfit.serve.simulate.pools import TwoPools
from meshfit.serve.simulate.simulation import simulate, stability_of
from tests.serve.simulate.clocks import LinearClock, pool, scheduler

TRAFFIC = TrafficSpec(
    prompt=LengthSpec(median_tokens=100, p99_tokens=400),
    output=LengthSpec(median_tokens=20, p99_tokens=60),
    rate_per_s=20.0,
)
DRAW = Draw(requests=2000, longest_tokens=1000)
SPEC = scheduler(max_sequences=16)


def run(rate_per_s=20.0, *, pools=None, draw=DRAW, targets=()):
    traffic = replace(TRAFFIC, rate_per_s=rate_per_s)
    return simulate(pools or pool(SPEC), traffic, draw, targets)


def test_a_simulation_repeats_itself_for_a_seed():
    assert run() == run()
    assert run() != run(draw=replace(DRAW, seed=1))


def test_the_saturation_rate_separates_queues_that_end_from_those_that_grow():
    saturation = run().saturation_per_s
    below, above = run(0.8 * saturation), run(1.3 * saturation)
    assert below.latencies["ttft"]["p99"] < 1.0 < above.latencies["ttft"]["p50"]
    assert below.served_per_s == pytest.approx(0.8 * saturation, rel=0.1)
    assert above.served_per_s == pytest.approx(saturation, rel=0.1)


@pytest.mark.parametrize(
    ("load", "stability"),
    [(0.5, "stable"), (0.95, "near_saturation"), (1.0, "overloaded"), (None, "unknown")],
)
def test_latencies_are_said_to_be_stable_or_not(load, stability):
    assert stability_of(load) == stability


def test_twice_the_replicas_saturate_at_twice_the_rate():
    one, two = run(), run(pools=pool(SPEC, replicas=2))
    assert two.saturation_per_s == pytest.approx(2 * one.saturation_per_s)


def test_replicas_are_busy_for_the_share_that_their_work_takes():
    """Requests one at a time: the share of time is rate x seconds of one."""
    alone = LengthSpec(median_tokens=100, p99_tokens=100)
    single = LengthSpec(median_tokens=1, p99_tokens=1)
    traffic = TrafficSpec(prompt=alone, output=single, rate_per_s=20.0)
    found = simulate(pool(scheduler(max_sequences=1)), traffic, DRAW)
    assert found.pools["replicas"].busy_fraction == pytest.approx(20 * 20e-3, rel=0.06)
    assert found.load == pytest.approx(20 * 20e-3, rel=0.06)


def test_goodput_counts_requests_within_all_targets_at_once():
    ttft = Target(metric="ttft", percentile=95, limit_s=0.08)
    itl = Target(metric="itl", percentile=95, limit_s=0.018)
    both = run(targets=(ttft, itl)).good_fraction
    assert 0 < both < min(run(targets=(ttft,)).good_fraction, run(targets=(itl,)).good_fraction)


def test_a_target_that_is_missed_comes_with_what_was_found():
    found = run(targets=(Target(metric="e2e", percentile=80, limit_s=1e-3),))
    assert found.missed["e2e.p80"] > 1e-3
    assert not run(targets=(Target(metric="e2e", percentile=80, limit_s=1e3),)).missed


def test_a_closed_loop_reports_no_load():
    traffic = replace(TRAFFIC, arrivals="closed", rate_per_s=None, concurrency=8)
    found = simulate(pool(SPEC), traffic, DRAW)
    assert (found.load, found.offered_per_s, found.stability) == (None, None, "closed_loop")
    assert found.served_per_s <= found.saturation_per_s * 1.05


def test_requests_that_arrive_at_once_have_no_load_and_are_no_closed_loop():
    found = run(draw=replace(DRAW, requests=1))
    assert (found.load, found.offered_per_s, found.stability) == (None, None, "unknown")


def test_requests_longer_than_the_models_context_are_counted():
    assert run().cut == 0
    found = run(draw=replace(DRAW, longest_tokens=100))
    assert 0.5 < found.cut / 2000 < 0.8


def test_a_prefix_that_all_share_is_reused():
    traffic = replace(TRAFFIC, shared_prefix_tokens=64)
    assert simulate(pool(SPEC), traffic, DRAW).reused_fraction > 0.3
    without = pool(replace(SPEC, prefix_caching=False))
    assert simulate(without, traffic, DRAW).reused_fraction == 0


def test_two_pools_add_the_transfer_and_keep_prompts_out_of_the_gaps():
    clock = LinearClock()
    both = TwoPools(
        prefill=pool(SPEC, clock), decode=pool(SPEC, clock), transfer_s=lambda tokens: tokens * 1e-5
    )
    apart, together = run(10.0, pools=both), run(10.0, pools=pool(SPEC, clock, replicas=2))
    assert apart.latencies["itl"]["p99"] < together.latencies["itl"]["p99"]
    assert apart.latencies["ttft"]["p50"] > together.latencies["ttft"]["p50"]
    assert set(apart.pools) == {"prefill", "decode"}
    slower = replace(both, transfer_s=lambda tokens: 1.0 + tokens * 1e-5)
    later = run(10.0, pools=slower).latencies["ttft"]["p50"] - apart.latencies["ttft"]["p50"]
    assert later == pytest.approx(1.0, abs=0.05)


def test_two_pools_saturate_with_the_slower_one():
    slow = pool(SPEC, LinearClock(start_s=50e-3))
    pools = TwoPools(prefill=pool(SPEC), decode=slow, transfer_s=lambda tokens: 0.0)
    faster = replace(pools, decode=pool(SPEC))
    assert run(5.0, pools=pools).saturation_per_s < run(5.0, pools=faster).saturation_per_s


def test_requests_that_can_never_be_served_are_counted_with_the_reason():
    tiny = pool(scheduler(kv_capacity_tokens=160))
    found = run(5.0, pools=tiny)
    assert sum(found.refused.values()) + found.measured <= 2000
    assert all("exceed the KV cache of 160" in why for why in found.refused)
    with pytest.raises(InputError, match="not one of 2000 requests can be served"):
        run(5.0, pools=pool(scheduler(kv_capacity_tokens=16)))
