"""Sums over queries agree with counting every visible pair."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from meshfit.workload.blocks.visibility import entries_seen, keys_seen, keys_seen_in_chunks

lengths = st.integers(1, 60)


@given(length=lengths, window=st.none() | st.integers(1, 80))
def test_causal_counts_every_visible_pair(length, window):
    pairs = itertools.product(range(length), repeat=2)
    visible = sum(key <= query < key + (window or length) for query, key in pairs)
    assert keys_seen(length, window=window) == visible


@given(length=lengths)
def test_a_token_sees_half_the_sequence_and_half_of_itself_on_average(length):
    assert keys_seen(length) / length == (length + 1) / 2
    assert keys_seen(length, causal=False) == length**2


@given(length=lengths, window=st.integers(1, 80))
def test_a_window_bounds_what_is_seen_without_a_mask_too(length, window):
    seen = keys_seen(length, window=window, causal=False)
    assert seen == length * min(length, window)


@given(length=st.integers(0, 60), chunk=st.integers(1, 80))
def test_a_chunk_hides_what_is_before_it(length, chunk):
    pairs = itertools.product(range(length), repeat=2)
    visible = sum(key <= query and key // chunk == query // chunk for query, key in pairs)
    assert keys_seen_in_chunks(length, chunk) == visible


@given(length=st.integers(0, 60), stride=st.integers(1, 20), most=st.none() | st.integers(1, 30))
def test_entries_are_seen_once_their_window_is_closed(length, stride, most):
    closed = [(query + 1) // stride for query in range(length)]
    assert entries_seen(length, stride, most=most) == sum(min(n, most or n) for n in closed)
