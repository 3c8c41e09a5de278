import pytest

from meshfit.report.predicted.plan import plan_table, plan_view
from tests.report.terminal import shown


def test_the_plan_shows_every_candidate_with_verdict_and_binding_term(plan_document):
    text = shown(plan_view(plan_document))
    assert "41 legal layouts, 42 rejected" in text
    for family in ("DDP (baseline)", "FSDP2", "FSDP2+TP", "PP+DDP"):
        assert family in text
    for word in ("fits", "tight", "does not fit", "compute", "tp_divides_kv_heads"):
        assert word in text


def test_the_plan_shows_no_more_than_the_top(plan_document):
    assert "PP+DDP" not in shown(plan_view(plan_document, top=2))


@pytest.mark.parametrize("width", [40, 60])
def test_no_column_vanishes_on_a_narrow_terminal(plan_document, width):
    text = shown(plan_table(plan_document["candidates"]), width)
    assert all(len(line) <= width for line in text.splitlines())
    assert {"DDP", "FSDP2"} <= set(text.split())
    assert "\N{HORIZONTAL ELLIPSIS}" not in text


def test_a_plan_in_which_nothing_fits_says_so_and_what_is_needed(plan_document):
    first = plan_document["candidates"][0]
    assert "Nothing fits" not in shown(plan_view(plan_document))
    without = {**plan_document, "candidates": [{**first, "verdict": "does_not_fit"}]}
    assert "Nothing fits" in shown(plan_view(without))
