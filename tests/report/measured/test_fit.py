import pytest

from meshfit.report.measured.fit import fit_table, fit_view, reasons
from tests.report.terminal import shown


def test_what_cpu_ranks_do_not_say_stands_above_the_winner(fit_document):
    text = shown(fit_view(fit_document))
    note, winner = text.index("says nothing about GPUs"), text.index("Winner:")
    assert note < winner


@pytest.mark.parametrize("width", [80, 120, 200])
def test_every_column_of_the_fit_table_is_whole_at_any_width(fit_document, width):
    text = shown(fit_table(fit_document), width)
    for figure in ("87.2\N{EN DASH}91.6 ms", "11,457", "346 MiB", "parity failed", "crash"):
        assert figure in text


@pytest.mark.parametrize("width", [40, 60])
def test_no_column_vanishes_on_a_narrow_terminal(fit_document, width):
    text = shown(fit_table(fit_document), width)
    assert all(len(line) <= width for line in text.splitlines())
    assert {"DDP", "FSDP2"} <= set(text.split())
    assert "\N{HORIZONTAL ELLIPSIS}" not in text


def test_a_failed_candidate_says_why_and_where(fit_document):
    text = shown(reasons(fit_document), 200)
    assert "boom in layer 3 (rank 1, phase step 2, signal 6)" in text
    assert "the ratio is dp_replicate = 2" in text


def test_a_fit_without_winner_says_so_with_the_reason(fit_document):
    fit_document["winner"] = None
    fit_document["reason"] = "no candidate passed parity"
    text = shown(fit_view(fit_document))
    assert "No winner. no candidate passed parity" in text


def test_markup_in_a_document_is_shown_as_text(fit_document):
    fit_document["candidates"][0]["reason"] = "won [bold]by[/bold] [/nothing]"
    fit_document["notes"] = ["a [red]note[/red]"]
    text = shown(fit_view(fit_document), 200)
    assert "won [bold]by[/bold] [/nothing]" in text
    assert "a [red]note[/red]" in text
