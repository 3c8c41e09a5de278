"""Latencies and throughput by the requests in flight."""

import numpy as np
import pytest

from meshfit.serve.load.steady import benchmark_ttft_s, steady_state, waiting_steps
from tests.serve.replicas import clock

CLOCK = clock("llama-3.1-8b", "8 H100-SXM", tp=1)
NUMBERS = np.array([1.0, 4.0, 16.0, 64.0, 256.0])


def steady(concurrency=NUMBERS, capacity=1000.0, prompt=1000.0, output=500.0, **options):
    return steady_state(
        options.pop("of", CLOCK),
        concurrency=concurrency,
        capacity=capacity,
        prompt_tokens=prompt,
        output_tokens=output,
        step_tokens=8192,
    )


def test_more_in_flight_is_slower_for_each_and_faster_for_all():
    found = steady()
    assert np.all(np.diff(found.tpot_s) > 0)
    assert np.all(np.diff(found.requests_per_s) > 0)


def test_requests_beyond_the_cache_wait_for_their_turn():
    found = steady(capacity=16.0)
    assert found.in_flight.tolist() == [1, 4, 16, 16, 16]
    assert found.waiting_s[:3].tolist() == [0, 0, 0]
    assert found.waiting_s[4] > 4 * found.waiting_s[3]
    assert found.tpot_s[3] == found.tpot_s[2]


def test_short_outputs_share_their_steps_with_more_prompts():
    assert np.all(steady(output=50.0).tpot_s > steady(output=5000.0).tpot_s * 0.9)
    assert steady(output=50.0).tpot_s[3] > 1.5 * steady(output=5000.0).decode_s[3] * 0.5


def test_a_prompt_beyond_the_budget_takes_several_steps():
    assert steady(prompt=16000.0).prompt_s[0] == pytest.approx(
        2 * steady(prompt=8000.0).prompt_s[0], rel=0.3
    )


def test_a_benchmark_prints_a_longer_first_token_than_a_running_server_gives():
    found = steady()
    assert np.all(benchmark_ttft_s(CLOCK, found) > found.ttft_s)


def test_a_pipeline_keeps_as_many_micro_batches_as_stages_under_way():
    one = clock("llama-3.1-70b", "8 H100-SXM", tp=2)
    four = clock("llama-3.1-70b", "8 H100-SXM", tp=2, pp=4)
    single, deep = (steady(NUMBERS[:1], of=of).tpot_s for of in (one, four))
    assert deep == pytest.approx(single, rel=0.1)
    loaded, spread = (steady(NUMBERS[-1:], of=of).requests_per_s for of in (one, four))
    assert spread > 1.3 * loaded


def test_prompts_wait_where_attention_groups_are_balanced():
    """TensorRT-LLM holds prompts back for steps of decoding; without groups it does not."""
    grouped = clock("deepseek-v3", "8 B200", engine="tensorrt_llm", attention_dp=8, ep=8)
    alone = clock("deepseek-v3", "8 B200", engine="tensorrt_llm", tp=8, ep=8)
    assert waiting_steps(grouped) > waiting_steps(alone) + 10
    found = steady(of=grouped)
    assert np.all(found.ttft_s > waiting_steps(grouped) * found.decode_s)
