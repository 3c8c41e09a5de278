import pytest

from meshfit.errors import InputError
from meshfit.validate.cells import MOST_SHOWN, require_possible
from tests.validate.builders import row


def check(*rows):
    require_possible([each.columns for each in rows], "measurements rows.csv")


def test_a_row_as_a_source_prints_it_may_be_scored():
    check(row(time_s="0.5", vpp="", first_stage_layers="0", zero_stage="3", attn_dropout="0"))


def test_words_are_not_stated_rather_than_wrong():
    check(row(mbs="unknown", gpus_per_node="n/a"))


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("n_layers", "1e30"),
        ("hidden", "99999999999999999999"),
        ("n_heads", "0"),
        ("tp", "3.5"),
        ("pp", "0"),
        ("seq_len", "-5"),
        ("mbs", "nan"),
        ("zero_stage", "9"),
        ("first_stage_layers", "-2"),
        ("fill_vocab", "0"),
        ("time_s", "-3"),
        ("time_s", "0"),
        ("step_time_s", "inf"),
        ("peak_mem_bytes", "1e400"),
        ("capacity_bytes", "nan"),
        ("attn_dropout", "1"),
    ],
)
def test_a_number_that_cannot_be_is_named_by_row_and_column(column, text):
    with pytest.raises(InputError, match=rf"row ROW-1: {column} is {text}"):
        check(row(**{column: text}))


def test_everything_wrong_is_counted_and_the_first_are_named():
    with pytest.raises(InputError) as caught:
        check(*(row(id=f"R-{n}", tp="0") for n in range(5)))
    assert str(caught.value).count("tp is 0") == MOST_SHOWN
    assert "and 2 more" in str(caught.value)


def test_rows_that_share_an_id_are_refused():
    with pytest.raises(InputError, match="row ROW-1: 2 rows have this id"):
        check(row(tp="1"), row(tp="2"))


def test_rows_without_an_id_are_refused():
    with pytest.raises(InputError, match="rows without an id"):
        check(row(id=""))


def test_a_file_without_rows_is_refused():
    with pytest.raises(InputError, match="holds no rows"):
        check()
