import numpy as np
import pytest

from meshfit.record.serving import ServedRequest
from meshfit.serve.bench.calibrate import fit_clock
from meshfit.serve.bench.open_loop import prompts_of
from meshfit.serve.time.step_time import StepLoad
from tests.serve.simulate.clocks import request


def lone(length: int, *, start_s=5e-3, token_s=1e-4, pair_s=1e-8, gap_s=2e-3, cached_s=1e-6):
    ttft_s = start_s + token_s * length + pair_s * length * (length + 1) / 2
    return ServedRequest(
        number=0,
        prompt_tokens=length,
        output_tokens=9,
        planned_s=0.0,
        sent_s=0.0,
        first_token_s=ttft_s,
        finished_s=1.0,
        gaps_s=(gap_s + cached_s * (length + 4.5),) * 8,
    )


def test_a_clock_is_found_again_from_requests_that_were_alone():
    clock = fit_clock([lone(length) for length in (16, 256, 1024, 4096)])
    alone = StepLoad(prefill_tokens=512, prefill_requests=1, prefill_pairs=512 * 513 / 2)
    assert float(clock.step_s(alone)) == pytest.approx(lone(512).first_token_s, rel=1e-6)
    decode = StepLoad(decode_requests=1, decode_context_tokens=1000)
    assert float(clock.step_s(decode)) == pytest.approx(2e-3 + 1e-3, rel=1e-6)


def test_no_coefficient_is_negative_whatever_noise_says():
    generator = np.random.default_rng(0)
    noisy = [lone(n, start_s=generator.uniform(1e-3, 9e-3), pair_s=0) for n in (16, 32, 64, 128)]
    clock = fit_clock(noisy)
    assert min(clock.start_s, clock.per_token_s, clock.per_pair_s, clock.per_cached_s) >= 0


def test_prompts_have_the_lengths_asked_for_and_share_what_they_share():
    first = request(0, prompt=50, prefix=("system",), segment_tokens=32)
    second = request(1, prompt=70, prefix=("system",), segment_tokens=32)
    third = request(2, prompt=5)
    prompts = prompts_of([first, second, third], vocab_size=100, seed=0)
    assert [len(prompt) for prompt in prompts] == [50, 70, 5]
    assert prompts[0][:32] == prompts[1][:32]
    assert prompts[0][32:] != prompts[1][32:50]
    assert prompts == prompts_of([first, second, third], vocab_size=100, seed=0)
