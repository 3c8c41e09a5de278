import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.predict.shape.schedules.play import play
from meshfit.predict.shape.schedules.waves import BACKWARD, FORWARD, waves_of

SECONDS = np.array([1.0, 2.0, 1.0, 1.0])
"""Of F, B, I and W: backward is twice the forward, its halves are equal."""


def step_s(schedule, pp, vpp, micro_batches, *, transfer=0.0, **keys):
    waves = waves_of(schedule, pp, vpp, micro_batches)
    played = play(waves, SECONDS[waves.kind, None] / vpp, np.array([transfer]), **keys)
    return float(played.released.max())


@given(pp=st.integers(1, 8), more=st.integers(0, 20))
def test_the_bubble_of_balanced_gpipe_and_1f1b_is_the_formula(pp, more):
    """(p - 1) / (m + p - 1) of the step (2104.04473, section 2.2), exactly."""
    micro_batches = pp + more
    for schedule in ("gpipe", "1f1b"):
        step = step_s(schedule, pp, 1, micro_batches)
        bubble = step - 3 * micro_batches
        assert bubble / step == pytest.approx((pp - 1) / (micro_batches + pp - 1), abs=1e-12)


@given(pp=st.integers(2, 6), rounds=st.integers(1, 5), vpp=st.integers(2, 4))
def test_interleaving_divides_the_bubble_by_the_virtual_stages(pp, rounds, vpp):
    micro_batches = pp * rounds
    for schedule in ("interleaved_1f1b", "looped_bfs"):
        step = step_s(schedule, pp, vpp, micro_batches)
        assert step - 3 * micro_batches == pytest.approx(3 * (pp - 1) / vpp)


@given(pp=st.integers(2, 6), rounds=st.integers(3, 6))
def test_zero_bubble_schedules_leave_less(pp, rounds):
    """ZB1P: F + I - W a hop; in a V of equal passes two thirds less still (2401.10241, table 1)."""
    micro_batches = pp * rounds
    interleaved = step_s("interleaved_1f1b", pp, 2, micro_batches)
    zero_bubble = step_s("interleaved_zero_bubble", pp, 2, micro_batches)
    assert zero_bubble - 3 * micro_batches == pytest.approx((pp - 1) / 2)
    assert zero_bubble < interleaved
    assert step_s("zbv_zero_bubble", pp, 2, micro_batches) <= zero_bubble
    assert step_s("dualpipe_v", pp, 2, micro_batches) <= interleaved


def test_a_small_1f1b_is_the_one_drawn_by_hand():
    """Two ranks, two micro-batches, forward 1, backward 2, transfer 0.5:

    rank 0:  F0 F1 . . . .  B0     B1
              0  1         5.0-7.0  7.5-9.5
    rank 1:  .  F0      B0       F1   B1
                1.5-2.5 2.5-4.5  4.5-5.5 5.5-7.5 -> arrives 8.0
    """
    waves = waves_of("1f1b", 2, 1, 2)
    played = play(waves, SECONDS[waves.kind, None], np.array([0.5]))
    names = ["FBIW"[kind] for kind in waves.kind]
    spans = {
        (int(rank), name, int(number)): (float(start), float(finish))
        for rank, name, number, start, finish in zip(
            waves.rank,
            names,
            waves.micro_batch,
            played.start[:, 0],
            played.finish[:, 0],
            strict=True,
        )
    }
    assert spans == {
        (0, "F", 0): (0.0, 1.0),
        (0, "F", 1): (1.0, 2.0),
        (1, "F", 0): (1.5, 2.5),
        (1, "B", 0): (2.5, 4.5),
        (1, "F", 1): (4.5, 5.5),
        (1, "B", 1): (5.5, 7.5),
        (0, "B", 0): (5.0, 7.0),
        (0, "B", 1): (8.0, 10.0),
    }


def test_a_rank_that_waits_for_its_sends_pays_for_each():
    """In the middle of a long 1F1B pipeline, one send each way for every micro-batch."""
    without = step_s("1f1b", 4, 1, 64, transfer=0.25)
    waiting = step_s("1f1b", 4, 1, 64, transfer=0.25, waits_for_sends=True)
    assert step_s("1f1b", 4, 1, 64) < without < waiting
    more = step_s("1f1b", 4, 1, 65, transfer=0.25, waits_for_sends=True) - waiting
    assert more == pytest.approx(3 + 2 * 0.25)


def test_a_rank_that_receives_in_its_turn_pays_for_each():
    """GPipe's ranks wait for one transfer before each forward, and each backward."""
    hidden = step_s("gpipe", 4, 1, 64, transfer=0.25)
    in_turn = step_s("gpipe", 4, 1, 64, transfer=0.25, receives_late=True)
    assert hidden == pytest.approx(3 * 67 + 2 * 3 * 0.25)
    assert in_turn == pytest.approx(hidden + 2 * 63 * 0.25)


def test_what_a_rank_does_after_an_action_delays_its_next_and_not_its_result():
    """Two ranks, one micro-batch; rank 1 is held for 5 after its backward, rank 0 starts at once."""
    waves = waves_of("1f1b", 2, 1, 1)
    after = np.where((waves.kind == BACKWARD) & (waves.rank == 1), 5.0, 0.0)[:, None]
    played = play(waves, SECONDS[waves.kind, None], np.zeros(1), after=after)
    assert played.finish.max() == 6.0
    assert played.released[waves.by_rank[1][-1]] == 9.0


def test_stages_of_different_length_wait_for_the_slowest():
    waves = waves_of("gpipe", 2, 1, 3)
    seconds = np.where(waves.stage == 1, 2.0, 1.0) * np.where(waves.kind == FORWARD, 1.0, 2.0)
    played = play(waves, seconds[:, None], np.zeros(1))
    assert played.finish.max() == 1 + 3 * 2 + 3 * 4 + 2


def test_layouts_side_by_side_are_played_apart():
    waves = waves_of("interleaved_1f1b", 4, 2, 8)
    scale = np.array([1.0, 3.0])
    played = play(waves, SECONDS[waves.kind, None] * scale, np.zeros(2))
    assert played.finish.max(axis=0)[1] == pytest.approx(3 * played.finish.max(axis=0)[0])
