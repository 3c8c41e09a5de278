import numpy as np
import pytest

from meshfit.serve.asked.speculation import SpeculationSpec
from meshfit.serve.asked.traffic import LengthSpec, TrafficSpec
from meshfit.serve.simulate.arrivals import Draw, draw_requests

PROMPT = LengthSpec(median_tokens=900, p99_tokens=8000)
OUTPUT = LengthSpec(median_tokens=200, p99_tokens=1000)


def traffic(**changes):
    return TrafficSpec(**({"prompt": PROMPT, "output": OUTPUT, "rate_per_s": 20.0} | changes))


def draw(**changes):
    return Draw(**({"requests": 20_000, "longest_tokens": 100_000} | changes))


def gaps_of(requests):
    return np.diff([one.arrival_s for one in requests])


def test_the_same_seed_draws_the_same_requests_and_another_one_others():
    first, again = (draw_requests(traffic(), draw(requests=50, seed=3)) for _ in range(2))
    other = draw_requests(traffic(), draw(requests=50, seed=4))
    lengths = [[(r.arrival_s, r.prompt_tokens) for r in one] for one in (first, again, other)]
    assert lengths[0] == lengths[1] != lengths[2]


def test_lengths_have_the_median_and_the_99th_percentile_that_are_given():
    prompts = [one.prompt_tokens for one in draw_requests(traffic(), draw())]
    assert np.median(prompts) == pytest.approx(900, rel=0.03)
    assert np.percentile(prompts, 99) == pytest.approx(8000, rel=0.08)


@pytest.mark.parametrize(
    ("arrivals", "burstiness", "variation"),
    [("constant", 1.0, 0.0), ("poisson", 1.0, 1.0), ("bursts", 4.0, 2.0)],
)
def test_gaps_have_the_mean_of_the_rate_and_their_own_variation(arrivals, burstiness, variation):
    gaps = gaps_of(draw_requests(traffic(arrivals=arrivals, burstiness=burstiness), draw()))
    assert gaps.mean() == pytest.approx(1 / 20, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.05, abs=1e-6)


def test_requests_are_cut_at_the_longest_context_the_output_first():
    for one in draw_requests(traffic(), draw(requests=500, longest_tokens=1000)):
        assert one.prompt_tokens + one.output_tokens <= 1000
        assert one.output_tokens >= 1


def test_time_outside_steps_delays_what_a_replica_sees():
    (one,) = draw_requests(traffic(), draw(requests=1, request_s=0.02))
    assert one.ready_s == pytest.approx(one.arrival_s + 0.02)


def test_every_prompt_is_longer_than_the_shared_prefix():
    requests = draw_requests(traffic(shared_prefix_tokens=1024), draw(requests=500))
    assert min(one.prompt_tokens for one in requests) == 1025
    assert {one.prefix for one in requests} == {("shared prefix",)}


def test_accepted_drafts_shorten_outputs_by_the_expected_factor():
    speculation = SpeculationSpec(draft_tokens=3, acceptance=0.7)
    requests = draw_requests(traffic(), draw(requests=2000, speculation=speculation))
    tokens = sum(one.output_tokens - 1 for one in requests)
    steps = sum(one.decode_steps for one in requests)
    assert speculation.tokens_per_step == pytest.approx(1 + 0.7 + 0.7**2 + 0.7**3)
    assert tokens / steps == pytest.approx(speculation.tokens_per_step, rel=0.02)


def test_drafts_that_are_never_accepted_change_nothing():
    speculation = SpeculationSpec(draft_tokens=3, acceptance=0.0)
    requests = draw_requests(traffic(), draw(requests=100, speculation=speculation))
    assert all(one.decode_steps == one.output_tokens - 1 for one in requests)
