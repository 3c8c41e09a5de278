import pytest

from meshfit.validate.figures import Figures
from meshfit.validate.fit_scores import fit_score
from tests.validate.builders import figures, row

FULL = {"peak_mem_bytes": "95", "capacity_bytes": "100", "mem_kind": "reserved"}


def counted(verdict, **columns):
    return fit_score([row(**columns)], figures(Figures(id="ROW-1", verdict=verdict)))


@pytest.mark.parametrize(
    ("verdict", "caught", "comfortable"),
    [("does_not_fit", 1, 0), ("tight", 1, 0), ("fits", 0, 1)],
)
def test_what_ran_out_of_memory_is_caught_unless_it_was_said_to_fit(verdict, caught, comfortable):
    found = counted(verdict, status="oom")
    assert (found.oom_rows, found.oom_caught, found.oom_called_comfortable) == (
        1,
        caught,
        comfortable,
    )


@pytest.mark.parametrize(("verdict", "kept"), [("fits", 1), ("tight", 1), ("does_not_fit", 0)])
def test_what_ran_is_kept_unless_it_was_said_not_to_fit(verdict, kept):
    found = counted(verdict)
    assert (found.ok_rows, found.ok_kept) == (1, kept)


@pytest.mark.parametrize(("verdict", "agrees"), [("fits", 0), ("tight", 1)])
def test_a_peak_above_nine_tenths_is_no_comfortable_fit(verdict, agrees):
    found = counted(verdict, **FULL)
    assert (found.full_rows, found.full_agree) == (1, agrees)


def test_allocated_memory_says_nothing_of_nine_tenths():
    assert counted("fits", **(FULL | {"mem_kind": "allocated"})).full_rows == 0


def test_without_a_verdict_a_row_is_unmodelled():
    assert fit_score([row()], {}).unmodelled == 1


@pytest.mark.parametrize(
    "columns",
    [
        {"mbs": ""},
        {"arch": "moe"},
        {"task": "lora"},
        {"flags": "read as OOM"},
        {"family": "litgpt"},
    ],
)
def test_rows_that_say_nothing_of_what_fits(columns):
    assert counted("fits", **columns).ok_rows == 0
