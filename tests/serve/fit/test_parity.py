import math

import pytest

from meshfit.errors import InputError
from meshfit.record.serving import GreedyOutput
from meshfit.serve.fit.parity import TOLERANCE, compare_outputs, fixed_prompts


def output(tokens, log_probabilities=None):
    values = log_probabilities or [-1.0] * len(tokens)
    return GreedyOutput(tokens=tuple(tokens), log_probabilities=tuple(values))


BASELINE = [output([1, 2, 3, 4]), output([5, 6, 7, 8])]


def test_equal_outputs_agree():
    found = compare_outputs(BASELINE, BASELINE)
    assert found.ok
    assert (found.share_equal, found.first_divergence, found.largest_difference) == (1.0, None, 0.0)


def test_a_tie_that_rounding_decides_the_other_way_is_no_failure():
    tied = output([5, 6, 9, 9], [-1.0, -1.0, -1.0 + TOLERANCE / 2, -4.0])
    found = compare_outputs([BASELINE[0], tied], BASELINE)
    assert found.ok
    assert (found.share_equal, found.first_divergence) == (6 / 8, 2)


def test_another_token_that_was_no_tie_is_a_failure():
    other = output([5, 6, 9, 9], [-1.0, -1.0, -1.5, -1.0])
    found = compare_outputs([BASELINE[0], other], BASELINE)
    assert not found.ok
    assert found.largest_difference == pytest.approx(0.5)


def test_equal_tokens_with_other_probabilities_are_a_failure():
    shifted = output([1, 2, 3, 4], [-1.0, -1.01, -1.0, -1.0])
    found = compare_outputs([shifted, BASELINE[1]], BASELINE)
    assert not found.ok
    assert found.share_equal == 1.0


@pytest.mark.parametrize(
    "broken", [output([1, 2, 3]), output([1, 2, 3, 4], [-1.0, math.nan, -1.0, -1.0])]
)
def test_missing_tokens_and_no_numbers_are_failures(broken):
    assert not compare_outputs([broken, BASELINE[1]], BASELINE).ok


def test_prompts_are_always_the_same_and_fit_the_context():
    assert fixed_prompts(256, 256) == fixed_prompts(256, 256)
    assert max(len(prompt) for prompt in fixed_prompts(256, 20)) == 4
    with pytest.raises(InputError, match="too short to compare"):
        fixed_prompts(256, 16)
