import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshfit.predict.shape.pick import alike, largest, picked


@given(st.integers(1, 5), st.integers(0, 20), st.randoms(use_true_random=False))
def test_every_position_has_the_value_of_the_array_named_for_it(count, length, random):
    which = np.array([random.randrange(count) for _ in range(length)], dtype=np.int64)
    values = np.array([[random.random() for _ in range(length)] for _ in range(count)])
    assert picked(which, values).tolist() == [values[w][i] for i, w in enumerate(which)]
    assert picked(which, list(values)).tolist() == picked(which, values).tolist()


@given(
    st.lists(
        st.tuples(*(st.sampled_from([0, 1, 5, 2**20, 2**40]) for _ in range(5))),
        min_size=1,
        max_size=30,
    )
)
def test_rows_are_alike_that_are_equal_in_every_column_however_large(rows):
    first, which = alike(np.array(rows, dtype=np.int64).T)
    assert len(first) == len(set(rows))
    assert all(rows[first[which[row]]] == rows[row] for row in range(len(rows)))


@given(st.integers(1, 5), st.integers(0, 20), st.integers(0, 2**32 - 1))
def test_the_largest_is_the_first_of_equals(rows, columns, seed):
    values = np.random.default_rng(seed).integers(0, 4, (rows, columns)).astype(float)
    assert largest(values).tolist() == np.argmax(values, axis=0).tolist()
