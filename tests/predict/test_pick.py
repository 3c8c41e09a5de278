import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshfit.predict.pick import picked


@given(st.integers(1, 5), st.integers(0, 20), st.randoms(use_true_random=False))
def test_every_position_has_the_value_of_the_array_named_for_it(count, length, random):
    which = np.array([random.randrange(count) for _ in range(length)], dtype=np.int64)
    values = np.array([[random.random() for _ in range(length)] for _ in range(count)])
    assert picked(which, values).tolist() == [values[w][i] for i, w in enumerate(which)]
    assert picked(which, list(values)).tolist() == picked(which, values).tolist()
