import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.serve.asked.latencies import (
    Gaps,
    RequestTimes,
    is_good,
    latency_percentiles,
    missed_targets,
    percentile,
)
from meshfit.serve.asked.traffic import Target

ONE = RequestTimes(sent_s=1.0, first_token_s=1.2, finished_s=2.1, output_tokens=10)
SINGLE = RequestTimes(sent_s=1.0, first_token_s=1.2, finished_s=1.2, output_tokens=1)
NO_GAPS = Gaps(seconds=np.array([]), counts=np.array([]))


def test_tpot_is_the_time_after_the_first_token_over_the_other_tokens():
    assert ONE.ttft_s == pytest.approx(0.2)
    assert ONE.tpot_s == pytest.approx(0.9 / 9)
    assert SINGLE.tpot_s is None


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 5)), min_size=1), st.integers(1, 100))
def test_counted_values_have_the_percentiles_of_values_written_out(pairs, percent):
    values, counts = zip(*pairs, strict=True)
    written_out = np.repeat(values, counts)
    expected = np.percentile(written_out, percent, method="inverted_cdf")
    assert percentile(values, percent, counts) == pytest.approx(expected)


def test_requests_of_one_token_have_no_tpot():
    found = latency_percentiles([ONE, SINGLE], NO_GAPS)
    assert found["tpot"]["p99"] == pytest.approx(0.1)
    assert found["itl"] == {}


def test_a_limit_on_gaps_holds_for_the_mean_gap_of_a_request():
    assert is_good(ONE, [Target(metric="itl", percentile=95, limit_s=0.11)])
    assert not is_good(ONE, [Target(metric="itl", percentile=95, limit_s=0.09)])


def test_a_target_without_any_value_is_not_missed():
    target = Target(metric="itl", percentile=97, limit_s=0.1)
    found = latency_percentiles([SINGLE], NO_GAPS)
    assert missed_targets(found, [target], times=[SINGLE], gaps=NO_GAPS) == {}
