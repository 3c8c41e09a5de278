"""Lengths and targets of traffic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.serve.asked.traffic import LengthSpec, Target


def test_lengths_go_through_their_median_and_their_99th_percentile():
    lengths = LengthSpec(median_tokens=900, p99_tokens=8000)
    assert lengths.quantile_tokens(0.5) == pytest.approx(900)
    assert lengths.quantile_tokens(0.99) == pytest.approx(8000)
    assert lengths.mean_tokens > 900


@given(st.integers(1, 10**6), st.floats(0.01, 0.99))
def test_equal_lengths_have_no_spread(tokens, fraction):
    lengths = LengthSpec(median_tokens=tokens, p99_tokens=tokens)
    assert lengths.quantile_tokens(fraction) == pytest.approx(tokens)
    assert lengths.mean_tokens == pytest.approx(tokens)


def test_a_target_is_named_by_metric_and_percentile():
    assert Target(metric="ttft", percentile=95, limit_s=0.5).name == "ttft.p95"
    assert Target(metric="itl", percentile=99.9, limit_s=0.5).name == "itl.p99.9"
