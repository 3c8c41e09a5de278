import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.predict.verdict import DOES_NOT_FIT, FITS, TIGHT, VERDICTS, verdict, verdict_codes

CAPACITY = 100


@pytest.mark.parametrize(
    ("middle", "high", "expected"),
    [
        (80, 90, "fits"),  # the upper end is just within the headroom
        (80, 91, "tight"),
        (100, 110, "tight"),  # the middle is just within the whole
        (101, 111, "does_not_fit"),
    ],
)
def test_verdicts_follow_upper_end_and_middle(middle, high, expected):
    found = verdict(
        middle_bytes=middle, high_bytes=high, capacity_bytes=CAPACITY, headroom_fraction=0.1
    )
    assert found == expected


@given(
    middle=st.floats(1, 200),
    more=st.floats(0, 50),
    headroom=st.sampled_from([0.0, 0.1, 0.3]),
    growth=st.floats(0, 100),
)
def test_more_memory_never_makes_a_verdict_better(middle, more, headroom, growth):
    codes = verdict_codes(
        middle_bytes=np.array([middle, middle + growth]),
        high_bytes=np.array([middle + more, middle + more + growth]),
        capacity_bytes=CAPACITY,
        headroom_fraction=headroom,
    )
    assert codes[0] <= codes[1]


def test_codes_rank_what_fits_first():
    assert [VERDICTS[code] for code in (FITS, TIGHT, DOES_NOT_FIT)] == [
        "fits",
        "tight",
        "does_not_fit",
    ]
    assert FITS < TIGHT < DOES_NOT_FIT
