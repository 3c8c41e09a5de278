from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.measure.timeline.exposure import profiles
from meshfit.measure.timeline.spans import Call, Computation, HostGap, StepTrace

STEP_S = 100.0


def call(
    begin_s: float, end_s: float, collective: str = "all_reduce", axis: str = "dp_shard", **of: int
) -> Call:
    return Call(
        collective=collective,
        axis=axis,
        group="0",
        ranks=(0, 1),
        begin_s=begin_s,
        end_s=end_s,
        size_bytes=8,
        **of,
    )


def trace(
    calls: Sequence[Call] = (),
    computing: Sequence[tuple[float, float]] = (),
    *,
    rank: int = 0,
    work: str = "compute",
    waits: Sequence[tuple[float, float]] = (),
) -> StepTrace:
    return StepTrace(
        rank=rank,
        begin_s=0.0,
        end_s=STEP_S,
        computations=tuple(
            Computation(name="mm", work=work, begin_s=begin, end_s=end) for begin, end in computing
        ),
        calls=tuple(calls),
        input_waits=tuple(waits),
    )


def test_communication_that_computation_covers_is_not_exposed() -> None:
    (hidden,) = profiles([trace([call(10, 20)], [(5, 30)])], is_pipeline=False)
    assert hidden.time.exposed == {"all_reduce.dp_shard": 0.0}
    assert hidden.communication_s == 10

    (half,) = profiles([trace([call(10, 20)], [(5, 15)])], is_pipeline=False)
    assert half.time.exposed == {"all_reduce.dp_shard": 5.0}
    assert half.time.compute == 10


def test_kinds_and_axes_are_told_apart_and_a_moment_counts_once_for_the_earlier_call() -> None:
    calls = [
        call(10, 30),
        call(20, 40, "reduce_scatter"),
        call(35, 38, "all_gather", "tp"),
        call(50, 60, "all_gather", "tp"),
    ]
    (profile,) = profiles([trace(calls)], is_pipeline=False)
    assert profile.time.exposed == {
        "all_gather.tp": 10.0,
        "all_reduce.dp_shard": 20.0,
        "reduce_scatter.dp_shard": 10.0,
    }
    assert profile.time.other == STEP_S - 40


def test_waiting_for_a_stage_that_has_not_sent_yet_is_bubble_and_the_rest_is_transfer() -> None:
    message = {"collective": "p2p", "axis": "pp", "source": 0, "target": 1}
    sender = trace([call(40, 42, **message)], [(0, 40)])
    receiver = trace([call(0, 45, **message)], [(45, 80)], rank=1)
    sent, received = profiles([sender, receiver], is_pipeline=True)
    assert (sent.time.bubble, sent.time.exposed) == (0.0, {"p2p.pp": 2.0})
    assert (received.time.bubble, received.time.exposed) == (40.0, {"p2p.pp": 5.0})
    assert (sent.waiting_s, received.waiting_s) == (0.0, 40.0)


def test_without_a_pipeline_waiting_for_a_slower_rank_stays_exposed_and_there_is_no_bubble() -> (
    None
):
    fast, slow = profiles(
        [trace([call(10, 62)], [(0, 10)]), trace([call(60, 62)], [(0, 60)], rank=1)],
        is_pipeline=False,
    )
    assert fast.time.bubble is None
    assert fast.time.exposed == {"all_reduce.dp_shard": 52.0}
    assert (fast.waiting_s, slow.waiting_s) == (50.0, 0.0)


def test_the_second_collective_of_a_group_is_matched_with_the_second_one() -> None:
    one = trace([call(0, 5), call(10, 35)])
    other = trace([call(4, 5), call(30, 35)], rank=1)
    first, second = profiles([one, other], is_pipeline=False)
    assert (first.waiting_s, second.waiting_s) == (4 + 20, 0)


def test_recompute_and_optimizer_have_terms_of_their_own() -> None:
    (again,) = profiles([trace(computing=[(1, 3)], work="recompute")], is_pipeline=False)
    assert (again.time.compute, again.time.recompute, again.time.optimizer) == (0, 2, 0)


def gap(begin_s: float, end_s: float, running_s: float, core_wait_s: float | None) -> HostGap:
    return HostGap(begin_s=begin_s, end_s=end_s, running_s=running_s, core_wait_s=core_wait_s)


def test_what_nothing_fills_is_divided_into_running_waiting_for_a_core_and_the_rest() -> None:
    gaps = (gap(20, 60, 10, 25), gap(80, 100, 20, 0))
    one = replace(trace(computing=[(0, 20), (60, 80)]), gaps=gaps)
    (profile,) = profiles([one], is_pipeline=False)
    assert profile.time.other == 60
    assert (profile.host_s, profile.core_wait_s, profile.unattributed_s) == (30, 25, 5)


def test_a_gap_counts_by_the_share_of_it_that_no_transfer_fills() -> None:
    one = replace(trace([call(20, 50)], [(0, 20), (60, 100)]), gaps=(gap(20, 60, 20, 8),))
    (profile,) = profiles([one], is_pipeline=False)
    assert profile.time.other == 10
    assert (profile.host_s, profile.core_wait_s, profile.unattributed_s) == (5, 2, 3)


def test_where_the_kernel_does_not_count_waiting_for_a_core_nothing_is_said_of_it() -> None:
    one = replace(trace(computing=[(0, 20)]), gaps=(gap(20, 100, 50, None),))
    (profile,) = profiles([one], is_pipeline=False)
    assert (profile.host_s, profile.core_wait_s, profile.unattributed_s) == (50, None, 30)
    (bare,) = profiles([trace(computing=[(0, 20)])], is_pipeline=False)
    assert (bare.host_s, bare.core_wait_s, bare.unattributed_s) == (None, None, 80)


SPANS = st.lists(
    st.tuples(st.floats(-5, 105), st.floats(-5, 105)).map(lambda ends: (min(ends), max(ends))),
    max_size=6,
)


@given(SPANS, SPANS, SPANS, SPANS, st.booleans())
def test_terms_add_up_to_the_step(
    calls: list[tuple[float, float]],
    others: list[tuple[float, float]],
    computing: list[tuple[float, float]],
    waits: list[tuple[float, float]],
    is_pipeline: bool,
) -> None:
    inside = [(max(0.0, begin), min(STEP_S, end)) for begin, end in computing if begin < STEP_S]
    waiting = [(max(0.0, begin), min(STEP_S, end)) for begin, end in waits if begin < STEP_S]
    ours = trace([call(*span) for span in calls], inside, waits=waiting)
    theirs = trace([call(*span) for span in others], rank=1)
    profile, _ = profiles([ours, theirs], is_pipeline=is_pipeline)
    assert profile.time.step == pytest.approx(STEP_S)
    assert sum(profile.time.exposed.values()) <= profile.communication_s + 1e-9
