import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.mesh.candidates import SCHEDULES
from meshfit.mesh.stage_placement import stages_of_rank
from meshfit.predict.shape.schedules.flight import peak_flight
from meshfit.predict.shape.schedules.program import rank_order


def held_after_forwards(schedule, rank, pp, vpp, micro_batches):
    """Micro-batches in flight and put off after every forward, all stages together."""
    change = {"F": 1, "B": -1, "I": 0, "W": -1}
    held, after = 0, []
    for action in rank_order(schedule, rank, pp, vpp, micro_batches):
        held += change[action.kind]
        if action.kind == "F":
            after.append(held)
    return after


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(pp=st.integers(1, 6), vpp=st.integers(2, 3), rounds=st.integers(1, 12))
def test_the_peak_of_a_short_program_is_that_of_the_whole_one(schedule, pp, vpp, rounds):
    if schedule in ("gpipe", "1f1b"):
        vpp = 1
    elif schedule in ("zbv_zero_bubble", "dualpipe_v"):
        vpp, rounds = 2, rounds + 1
    for rank in range(pp):
        peak = peak_flight(schedule, rank, pp, vpp, rounds * pp)
        held = held_after_forwards(schedule, rank, pp, vpp, rounds * pp)
        assert sum(peak.per_stage) + sum(peak.put_off) == max(held)
        assert len(peak.per_stage) == len(stages_of_rank(schedule, rank, pp, vpp))


def test_weights_are_put_off_where_the_schedule_says():
    """Rank 1 of two under ZB1P: its weight gradients run one backward late."""
    peak = peak_flight("interleaved_zero_bubble", 1, 2, 2, 8)
    assert peak.per_stage == (2, 1)
    assert peak.put_off == (0, 1)
