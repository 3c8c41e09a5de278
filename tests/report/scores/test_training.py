import pytest
from rich.console import Console

from meshfit.report.scores.training import validation_sections, validation_view
from meshfit.validate.document import missed_targets, validation_document
from meshfit.validate.predictions import predict_rows
from tests.validate.builders import row

ROWS = [
    row(id="a", time_s="6.0", peak_mem_bytes="50000000000", mem_kind="allocated"),
    row(id="b", framework="Gemini", time_s="6.0"),
    row(id="c", tp="1", tokens_s_gpu="9000", rank_group="g"),
    row(id="d", tp="8", dp="1", tokens_s_gpu="7000", rank_group="g"),
]


@pytest.fixture(scope="module")
def document():
    return validation_document("rows.csv", ROWS, predict_rows(ROWS), with_targets=True)


def test_every_row_of_the_file_has_an_entry_in_order(document):
    assert [entry["id"] for entry in document["rows"]] == ["a", "b", "c", "d"]


def test_plain_rules_stand_beside_the_scores(document):
    titles = {section.title: section for section in validation_sections(document)}
    memory = titles["Memory: predicted over measured"]
    assert memory.columns[-1] == "textbook"
    order = titles["Order: which of two layouts is faster"]
    assert order.rows[0][0] == "narrow: meshfit"
    assert "least" in order.rows[1][0]


def test_rows_not_modelled_have_their_reason(document):
    (section,) = [s for s in validation_sections(document) if s.title == "Rows not modelled"]
    assert section.rows == [("not modelled: Gemini", "1")]


def test_targets_without_rows_are_missed(document):
    assert "memory, bigscience_v100: median" in missed_targets(document)


def test_without_targets_there_are_none_to_miss():
    plain = validation_document("rows.csv", ROWS, predict_rows(ROWS))
    assert missed_targets(plain) == []
    assert "Targets" not in [section.title for section in validation_sections(plain)]


def test_the_terminal_shows_every_table(document):
    console = Console(width=160, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(validation_view(document))
    text = captured.get()
    for section in validation_sections(document):
        assert section.title in text
    assert "targets are missed" in text


def test_an_empty_file_has_no_tables():
    empty = validation_document("rows.csv", [], [])
    assert validation_sections(empty) == []
