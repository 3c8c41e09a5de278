import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.errors import InputError
from meshfit.workload.documents import DocumentSpec, read_documents, segments, useful_share

LENGTHS = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(1, 50)),
    min_size=1,
    max_size=8,
    unique_by=lambda p: p[0],
)


def documents(*lengths, filling="packed"):
    return DocumentSpec(filling=filling, lengths=tuple(sorted(lengths)))


@pytest.mark.parametrize(
    "text",
    [
        "10\n20\n20\n",
        "length\n10\n20\n20\n",
        "id, Length\na,10\nb,20\n\nc,20\n",
        "length,count\n10,1\n20,2\n",
        "\ufefflength\r\n10\r\n20\r\n20\r\n",
    ],
)
def test_lengths_are_read_one_a_line_or_with_counts(tmp_path, text):
    path = tmp_path / "lengths.csv"
    path.write_text(text, encoding="utf-8")
    assert read_documents(path, "packed") == documents((10, 1), (20, 2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no length"),
        ("length\n", "holds no length"),
        ("tokens\n5\n", "neither a length nor a column named length; found tokens"),
        ("5\nfive\n", "line 2: length 'five' is no whole number of at least 1"),
        ("5\n-1\n", "line 2: length '-1' is no whole number"),
        ("5\n0\n", "line 2: length '0' is no whole number"),
        ("5\n1.5\n", "line 2: length '1.5' is no whole number"),
        ("length,count\n5,\n", "line 2: count '' is no whole number"),
        ("5\n9999999999\n", "line 2: length '9999999999' is no whole number"),
    ],
)
def test_a_bad_file_is_one_message(tmp_path, text, message):
    path = tmp_path / "lengths.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_documents(path, "packed")
    assert "\n" not in str(caught.value)


def test_what_is_no_text_and_what_is_not_there_are_refused(tmp_path):
    path = tmp_path / "lengths.csv"
    with pytest.raises(InputError, match="No such file"):
        read_documents(path, "packed")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="no CSV file of lengths"):
        read_documents(path, "packed")


def test_padding_is_what_documents_do_not_fill():
    spec = documents((25, 1), (75, 2), (300, 1), filling="padded")
    assert useful_share(spec, 100) == pytest.approx((25 + 75 * 2 + 100) / 400)
    assert useful_share(documents((25, 1)), 100) == 1.0
    assert useful_share(None, 100) == 1.0


@given(LENGTHS, st.integers(1, 3000))
def test_pieces_fill_whole_sequences_and_keep_their_squares(lengths, sequence_length):
    found = segments(documents(*lengths), sequence_length)
    number = len(found.work)
    tokens = sum(count * length for length, count in found.lengths)
    squares = sum(count * length**2 for length, count in found.lengths)
    assert tokens == pytest.approx(number * sequence_length)
    assert squares == pytest.approx(found.work.sum() * sequence_length**2)
    assert found.work.max() <= 1 + 1e-12
    assert np.all(np.diff(found.work) >= 0)


def test_documents_longer_than_a_sequence_fill_it_alone():
    assert segments(documents((10**6, 1)), 1000).work.mean() > 0.99


def test_short_documents_cost_their_own_squares():
    found = segments(documents((100, 1)), 1000)
    assert found.work == pytest.approx(np.full(len(found.work), 0.1))


def test_a_padded_sequence_is_computed_whole():
    found = segments(documents((10, 1), filling="padded"), 1000)
    assert found.work.tolist() == [1.0]


def test_equal_documents_give_equal_samples():
    spec = documents((17, 3), (400, 1))
    first = segments(spec, 1000).work
    segments.cache_clear()
    assert np.array_equal(first, segments(spec, 1000).work)
