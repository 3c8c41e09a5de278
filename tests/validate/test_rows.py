import pytest

from meshfit.errors import InputError
from meshfit.validate.rows import REQUIRED_COLUMNS, NotModelledError, TruthRow, read_rows
from tests.validate.builders import row


def test_an_empty_cell_and_an_absent_column_are_no_number():
    assert row(mbs="").whole("mbs") is None
    assert row().number("no_such_column") is None


def test_words_that_are_no_number_are_no_number():
    assert row(mbs="unknown").whole("mbs") is None


def test_a_mended_cell_goes_before_the_printed_one():
    assert row(vocab="50257", fill_vocab="30522").required("vocab") == 30522


def test_a_missing_size_says_which_one():
    with pytest.raises(NotModelledError, match="not stated: n_heads"):
        row(n_heads="").required("n_heads")


@pytest.mark.parametrize(("cell", "meaning"), [("1", True), ("no", False), ("", None)])
def test_a_flag_is_yes_no_or_not_stated(cell, meaning):
    assert row(sp=cell).flag("sp") is meaning


def test_completing_a_row_leaves_what_is_printed():
    completed = row(mbs="4", gbs="").completed({"mbs": "1", "gbs": "32"})
    assert (completed.text("mbs"), completed.text("gbs")) == ("4", "32")


def test_rows_come_in_the_order_of_the_file(tmp_path):
    path = tmp_path / "rows.csv"
    lines = [
        ",".join(REQUIRED_COLUMNS),
        *(f"R-{n}" + "," * (len(REQUIRED_COLUMNS) - 1) for n in "21"),
    ]
    path.write_text("\n".join(lines) + "\n")
    assert [found.id for found in read_rows(path)] == ["R-2", "R-1"]


def test_a_file_of_another_schema_names_what_it_lacks(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,family\nR-1,here\n")
    with pytest.raises(InputError, match="lacks columns of the schema: model, arch"):
        read_rows(path)


def test_a_file_that_is_not_there_is_one_message(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_rows(tmp_path / "absent.csv")


def test_bytes_that_are_no_text_are_one_message(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"\xff\xfe\x00id")
    with pytest.raises(InputError, match="no CSV file in UTF-8"):
        read_rows(path)


def test_a_row_knows_its_id():
    assert TruthRow({"id": "R-7"}).id == "R-7"
