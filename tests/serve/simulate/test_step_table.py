import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.serve.simulate.step_table import StepTable
from meshfit.serve.time.step_time import StepLoad
from tests.serve.simulate.clocks import LONGEST, LinearClock, scheduler


class RooflineClock(LinearClock):
    """The longer of arithmetic and reading weights, as devices have it."""

    def step_s(self, load):
        tokens = np.asarray(load.prefill_tokens) + np.asarray(load.decode_requests)
        return np.maximum(8e-3, 30e-6 * tokens) + (
            2e-9 * np.asarray(load.prefill_pairs) + 4e-8 * np.asarray(load.decode_context_tokens)
        )


CLOCK = RooflineClock()
SPEC = scheduler(max_sequences=64, token_budget=2048)
TABLE = StepTable(CLOCK, SPEC, max_context_tokens=LONGEST)


@given(st.integers(1, 64), st.integers(1, LONGEST))
def test_decode_steps_are_those_of_the_clock(requests, context):
    load = StepLoad(decode_requests=requests, decode_context_tokens=requests * context)
    alone_s, per_token_s = TABLE.decode(requests, requests * context)
    seconds = alone_s + requests * context * per_token_s
    assert seconds == pytest.approx(float(CLOCK.step_s(load)), rel=1e-6)
    assert per_token_s == pytest.approx(4e-8)


@given(st.integers(1, 2048), st.integers(0, 2000), st.integers(0, 63), st.integers(1, LONGEST))
def test_mixed_steps_are_within_two_percent_of_the_clock(tokens, cached, requests, context):
    pairs = tokens * (cached + (tokens + 1) / 2)
    load = StepLoad(
        prefill_tokens=tokens,
        prefill_requests=1,
        completed_prefills=1,
        prefill_pairs=pairs,
        decode_requests=requests,
        decode_context_tokens=requests * context,
    )
    found = TABLE.mixed_s(
        largest_chunk=tokens,
        tokens=tokens,
        pairs=pairs,
        requests=requests,
        context_tokens=requests * context,
    )
    assert found == pytest.approx(float(CLOCK.step_s(load)), rel=0.02)


def test_a_turn_of_micro_batches_lasts_at_least_as_long_as_the_slowest_stage_needs_for_all():
    class SlowStage(LinearClock):
        def interval_s(self, load):
            return 0.9 * self.step_s(load)

    spec = scheduler(max_sequences=64, micro_batches=4)
    table = StepTable(SlowStage(), spec, max_context_tokens=LONGEST)
    one = 10e-3 + 2 * 0.1e-3
    alone_s, per_token_s = table.decode(8, 8 * 100)
    assert alone_s + 8 * 100 * per_token_s == pytest.approx(4 * 0.9 * one)
