from meshfit.report.scores.sections import Section
from meshfit.report.scores.training import validation_sections
from meshfit.validate.document import validation_document
from meshfit.validate.predictions import predict_rows
from tests.validate.builders import row
from tools.sections import sections_markdown


def test_every_table_of_a_validation_is_there():
    rows = [
        row(id="a", time_s="6.0", peak_mem_bytes="50000000000", mem_kind="allocated"),
        row(id="b", framework="Gemini", time_s="6.0"),
    ]
    document = validation_document("rows.csv", rows, predict_rows(rows), with_targets=True)
    sections = validation_sections(document)
    text = sections_markdown(sections)
    assert text.count("\n| ---") == len(sections)
    for section in sections:
        assert f"### {section.title}" in text


def test_a_bar_in_a_cell_does_not_end_it_and_the_note_stands_below():
    table = Section(title="T", columns=("who", "error"), rows=[("a|b", "1%")], note="A note.")
    assert sections_markdown([table]).splitlines() == [
        *("### T", "", "| who | error |", "| --- | ---: |", "| a/b | 1% |", "", "A note."),
    ]
