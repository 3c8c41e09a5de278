from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.errors import InputError
from meshfit.mesh.candidates import SCHEDULES
from meshfit.mesh.stage_placement import rank_of_stage, stages_of_rank
from meshfit.predict.shape.schedules.program import program
from meshfit.predict.shape.schedules.waves import waves_of
from tests.predict.shape.schedules.torch_tables import torch_order


def shapes(schedule):
    """(pp, vpp, micro-batches) that torch takes."""
    match schedule:
        case "gpipe":
            return [(1, 1, 3), (2, 1, 1), (4, 1, 2), (4, 1, 8)]
        case "1f1b":
            return [(1, 1, 3), (2, 1, 2), (4, 1, 4), (4, 1, 11), (8, 1, 16)]
        case "looped_bfs":
            return [(2, 2, 2), (4, 3, 8), (4, 2, 3)]
        case "interleaved_1f1b" | "interleaved_zero_bubble":
            return [(2, 2, 2), (4, 2, 8), (4, 3, 10), (4, 2, 3), (8, 4, 24), (3, 2, 9)]
        case "zbv_zero_bubble":
            return [(2, 2, 2), (2, 2, 8), (4, 2, 3), (4, 2, 7), (4, 2, 16), (7, 2, 20)]
        case "dualpipe_v":
            return [(2, 2, 4), (2, 2, 9), (4, 2, 8), (4, 2, 16), (5, 2, 13)]


@pytest.mark.parametrize(
    ("schedule", "shape"), [(name, shape) for name in SCHEDULES for shape in shapes(name)]
)
def test_a_program_is_the_table_of_torch(schedule, shape):
    made = program(schedule, *shape)
    table = torch_order(schedule, *shape)
    assert sorted(table) == list(range(made.pp))
    for rank, actions in enumerate(made.ranks):
        assert [str(action) for action in actions] == table[rank]


@given(st.data())
def test_every_micro_batch_passes_every_stage_once_each_way(data):
    schedule = data.draw(st.sampled_from(SCHEDULES))
    shape = data.draw(st.sampled_from(shapes(schedule)))
    made = program(schedule, *shape)
    for rank, actions in enumerate(made.ranks):
        stages = stages_of_rank(schedule, rank, made.pp, made.vpp)
        counts = Counter(actions)
        assert set(counts.values()) == {1}
        passes = {
            (kind, action.stage, action.micro_batch)
            for action in actions
            for kind in (("I", "W") if action.kind == "B" else (action.kind,))
        }
        assert passes == {
            (kind, stage, number)
            for kind in ("F", "I", "W")
            for stage in stages
            for number in range(made.micro_batches)
        }


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_stages_partition_over_ranks(schedule):
    pp, vpp = 4, {"gpipe": 1, "1f1b": 1}.get(schedule, 2)
    placed = [stages_of_rank(schedule, rank, pp, vpp) for rank in range(pp)]
    assert sorted(stage for stages in placed for stage in stages) == list(range(pp * vpp))
    for rank, stages in enumerate(placed):
        assert {rank_of_stage(schedule, stage, pp) for stage in stages} == {rank}
        assert list(stages) == sorted(stages)


def test_a_v_puts_first_and_last_stage_on_one_rank():
    assert stages_of_rank("zbv_zero_bubble", 0, 4, 2) == (0, 7)
    assert stages_of_rank("dualpipe_v", 3, 4, 2) == (3, 4)


def test_megatron_rounds_are_of_pp_micro_batches_and_the_last_may_be_short():
    """Megatron-Core's schedule table for 2 virtual stages, 5 micro-batches and groups of 2."""
    rank = program("interleaved_1f1b", 2, 2, 5, "megatron").ranks[1]
    forwards = [(one.stage, one.micro_batch) for one in rank if one.kind == "F"]
    assert forwards == [
        (1, 0), (1, 1), (3, 0), (3, 1),
        (1, 2), (1, 3), (3, 2), (3, 3),
        (1, 4), (3, 4),
    ]  # fmt: skip


def test_megatron_and_torch_agree_where_rounds_divide():
    assert program("interleaved_1f1b", 4, 3, 12) == program(
        "interleaved_1f1b", 4, 3, 12, "megatron"
    )


@pytest.mark.parametrize(
    ("schedule", "vpp", "micro_batches", "message"),
    [
        ("zbv_zero_bubble", 3, 8, "zbv_zero_bubble schedule has 2 stages a rank, not vpp=3"),
        ("dualpipe_v", 1, 8, "dualpipe_v schedule has 2 stages a rank, not vpp=1"),
        ("dualpipe_v", 2, 7, r"at least 2\*pp = 8 micro-batches; you have 7"),
    ],
)
def test_what_a_schedule_has_no_order_for_is_said(schedule, vpp, micro_batches, message):
    with pytest.raises(InputError, match=message):
        program(schedule, 4, vpp, micro_batches)


def test_rounds_that_are_not_equal_may_leave_no_order():
    with pytest.raises(InputError, match="make no equal rounds"):
        waves_of("interleaved_1f1b", 4, 3, 9)
