"""Pages of docs/ whose tables tools write."""

import pytest

from tools.pages import DOCS, write_tables

WRITTEN = ("accuracy", "collectives", "engine-agreement", "exhaustive", "lab-predictions")


@pytest.mark.parametrize("name", WRITTEN)
def test_tables_take_the_place_of_those_between_the_marks_and_words_stay(name, tmp_path):
    page = tmp_path / "page.md"
    page.write_text((DOCS / f"{name}.md").read_text())
    before, _, after = page.read_text().partition("<!-- tables: ")
    write_tables(page, r"| \1 |")
    text = page.read_text()
    assert text.startswith(before)
    assert "-->\n\n| \\1 |\n<!-- end of tables -->" in text
    assert text.endswith(after.partition("<!-- end of tables -->")[2])


def test_a_page_without_marks_is_left_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("words")
    with pytest.raises(ValueError, match="no marks"):
        write_tables(page, "| 1 |")
    assert page.read_text() == "words"
