import pytest

from meshfit.report.parts import words


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        ("120 ms", "135 ms", "120\N{EN DASH}135 ms"),
        ("900 us", "1.20 ms", "900 us\N{EN DASH}1.20 ms"),
        ("120 ms", "120 ms", ""),
        ("8,100", "8,700", "8,100\N{EN DASH}8,700"),
    ],
)
def test_a_range_says_a_shared_unit_once_and_nothing_when_it_has_no_width(low, high, shown):
    assert words.between(low, high) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(2.34e-7, "2.3e-7"), (0.5, "0.5"), (0.0, "0"), (None, words.ABSENT)]
)
def test_an_error_is_short(value, shown):
    assert words.error(value) == shown


def test_what_was_not_obtained_is_a_dash_and_never_zero():
    assert {words.rate(None), words.size(None), words.duration(None)} == {words.ABSENT}


def test_a_layout_reads_as_keys():
    keys = {"tp": 2, "sp": False, "stage_layers": [3, 5]}
    assert words.layout(keys) == "tp=2,sp=false,stage_layers=3:5"
    assert words.layout({}) == "single"


@pytest.mark.parametrize(
    ("candidate", "why"),
    [
        ({"reason": "winner"}, "winner"),
        ({}, ""),
        (
            {
                "reason": "out of memory: no more",
                "failure": {"message": "no more", "rank": 1, "phase": "train"},
            },
            "no more (rank 1, phase train)",
        ),
        (
            {
                "reason": "parity failed: loss differs",
                "parity": {"ok": False, "message": "loss differs", "factor": "dp = 2"},
            },
            "loss differs; the ratio is dp = 2",
        ),
    ],
)
def test_why_a_candidate_stands_where_it_does_is_said_once(candidate, why):
    assert words.why(candidate) == why
