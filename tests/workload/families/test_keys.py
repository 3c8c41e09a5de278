"""Every key is read with its type and range; the message holds key, value and expectation."""

import pytest

from meshfit.errors import InputError
from meshfit.workload.families import keys


def test_an_absent_key_takes_the_default():
    assert keys.whole_number({}, "hidden_size", 4096) == 4096
    assert keys.optional_whole_number({}, "head_dim") is None
    assert keys.optional_whole_number({}, "sliding_window", 4096) == 4096
    assert keys.flag({}, "attention_bias", False) is False
    assert keys.probability({}, "attn_pdrop", 0.1) == 0.1


def test_null_is_taken_only_where_it_means_something():
    assert keys.optional_whole_number({"sliding_window": None}, "sliding_window", 4096) is None
    assert keys.probability({"attention_dropout": None}, "attention_dropout", 0.1) == 0.0
    with pytest.raises(InputError, match=r"^hidden_size is null; expected a whole number from 1"):
        keys.whole_number({"hidden_size": None}, "hidden_size", 4096)
    with pytest.raises(InputError, match=r"^tie is null; expected true or false"):
        keys.flag({"tie": None}, "tie", True)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (-3, "-3"),
        (True, "true"),
        (4096.0, r"4096\.0"),
        (float("inf"), "inf"),
        ("4096", "'4096'"),
        ([4096], r"\[4096\]"),
        (2**20 + 1, "1048577"),
        ("x" * 10_000, r"'xxxxx[x.]{,60}xxxx'"),
    ],
)
def test_what_is_no_size_is_refused_and_shown_short(value, shown):
    expected = rf"^hidden_size is {shown}; expected a whole number from 1 to 1048576$"
    with pytest.raises(InputError, match=expected):
        keys.whole_number({"hidden_size": value}, "hidden_size", 4096)


def test_a_number_too_long_to_print_is_shown_by_its_length():
    with pytest.raises(InputError, match=r"^vocab_size is a number of about 5001 digits; expected"):
        keys.whole_number({"vocab_size": 10**5000}, "vocab_size", 32000)


def test_the_message_says_when_null_would_do():
    with pytest.raises(InputError, match=r"head_dim is 0; .* 1048576 or null$"):
        keys.optional_whole_number({"head_dim": 0}, "head_dim")


@pytest.mark.parametrize("value", [1, 0, "false", [], None])
def test_a_flag_is_true_or_false_and_nothing_else(value):
    with pytest.raises(InputError, match=r"^mlp_bias is .*; expected true or false$"):
        keys.flag({"mlp_bias": value}, "mlp_bias", False)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf"), True, "0.1", [0.1]])
def test_a_dropout_is_a_probability(value):
    with pytest.raises(InputError, match=r"attn_pdrop is .*; expected a probability from 0 to 1"):
        keys.probability({"attn_pdrop": value}, "attn_pdrop", 0.1)
