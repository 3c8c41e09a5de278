import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.predict.simulate.streams import Unit, run_streams


def units(count, *, compute=1.0, exposed=0.0, gather=0.0, reduce=0.0):
    one = (np.array([value]) for value in (compute, exposed, gather, reduce))
    compute, exposed, gather, reduce = one
    return [Unit(compute=compute, exposed=exposed, gather=gather, reduce=reduce)] * count


def seconds(streams):
    return float(streams.compute[-1].end[0] + streams.reduce_wait[0])


def test_short_gathers_hide_all_but_the_first():
    """gather 0.25: |g0|c0 |c1 |c2 |, each later gather under the layer before it."""
    streams = run_streams(units(3, gather=0.25), overlap=1.0, prefetched=1)
    assert [float(span.start[0]) for span in streams.compute] == [0.25, 1.25, 2.25]
    assert [float(span.start[0]) for span in streams.gathers] == [0.0, 0.25, 1.25]
    assert float(streams.gather_wait[0]) == 0.25


def test_long_gathers_leave_computation_waiting():
    """gather 3: the link is never idle, so 3 gathers and the last layer."""
    streams = run_streams(units(3, gather=3.0), overlap=1.0, prefetched=1)
    assert seconds(streams) == 3 * 3 + 1


def test_gathers_wait_for_what_hides_nothing():
    """With half of a layer's computation to hide under, each gather starts half a layer later."""
    streams = run_streams(units(3, gather=3.0), overlap=0.5, prefetched=1)
    assert seconds(streams) == 3 + 2 * (0.5 + 3) + 1


def test_scatters_hide_under_the_next_layer_all_but_the_last():
    streams = run_streams(units(3, reduce=0.5), overlap=1.0, prefetched=1)
    assert seconds(streams) == 3.5
    assert [float(span.start[0]) for span in streams.reduces] == [1.0, 2.0, 3.0]


def test_without_overlap_all_communication_shows():
    for keys in ({"gather": 0.5}, {"reduce": 0.5}, {"gather": 0.5, "reduce": 0.25}):
        streams = run_streams(units(5, **keys), overlap=0.0, prefetched=1)
        assert seconds(streams) == pytest.approx(5 * (1 + sum(keys.values())))


def test_a_units_own_collectives_hide_nothing():
    plain = run_streams(units(4, gather=2.0), overlap=1.0, prefetched=1)
    between = run_streams(units(4, gather=2.0, exposed=0.5), overlap=1.0, prefetched=1)
    assert seconds(between) == seconds(plain) + 4 * 0.5


@given(
    count=st.integers(1, 6),
    gather=st.floats(0, 3),
    reduce=st.floats(0, 3),
    overlap=st.floats(0, 1),
    prefetched=st.integers(1, 3),
)
def test_a_pass_takes_no_less_than_its_parts_and_no_more_than_all_in_turn(
    count, gather, reduce, overlap, prefetched
):
    streams = run_streams(
        units(count, gather=gather, reduce=reduce), overlap=overlap, prefetched=prefetched
    )
    longest = max(count, count * (gather + reduce))
    assert longest - 1e-9 <= seconds(streams) <= count * (1 + gather + reduce) + 1e-9
    shown = float(streams.gather_wait[0] + streams.reduce_wait[0])
    assert seconds(streams) == pytest.approx(count + shown)
