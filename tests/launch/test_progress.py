import pytest

from meshfit.launch.progress import (
    STARTUP_PATIENCE_S,
    ProgressWatch,
    culprit,
    culprit_by_stacks,
    describe,
)
from meshfit.record.heartbeat import Heartbeat


def beat(
    rank: int, *, phase: str = "train", step: int = 1, waiting: bool = False, time: float = 0.0
) -> Heartbeat:
    return Heartbeat(rank=rank, pid=1, phase=phase, step=step, time=time, waiting=waiting)


def beats(*entries: Heartbeat) -> dict[int, Heartbeat]:
    return {entry.rank: entry for entry in entries}


@pytest.fixture
def watch() -> ProgressWatch:
    return ProgressWatch(num_ranks=2, hang_s=10.0, now_s=0.0)


def test_a_launch_that_moves_never_hangs(watch: ProgressWatch) -> None:
    for step in range(1, 9):
        assert not watch.hangs(beats(beat(0, step=step), beat(1)), now_s=9.0 * step)


def test_a_launch_hangs_when_nothing_moves_for_longer_than_it_may(watch: ProgressWatch) -> None:
    standing = beats(beat(0, waiting=True), beat(1))
    assert not watch.hangs(standing, now_s=100.0)
    assert not watch.hangs(standing, now_s=110.0)
    assert watch.hangs(standing, now_s=110.1)


@pytest.mark.parametrize(
    "starting", [{}, beats(beat(0)), beats(beat(0), beat(1, phase="init", step=0))]
)
def test_until_all_ranks_have_met_patience_is_that_of_starting(
    watch: ProgressWatch, starting: dict[int, Heartbeat]
) -> None:
    watch.hangs(starting, now_s=0.0)
    assert not watch.hangs(starting, now_s=STARTUP_PATIENCE_S)
    assert watch.hangs(starting, now_s=STARTUP_PATIENCE_S + 0.1)


def test_a_beat_that_only_repeats_itself_is_no_progress(watch: ProgressWatch) -> None:
    assert not watch.hangs(beats(beat(0, time=1.0), beat(1, time=1.0)), now_s=1.0)
    assert watch.hangs(beats(beat(0, time=12.0), beat(1, time=12.0)), now_s=12.0)


@pytest.mark.parametrize(
    ("heartbeats", "blamed"),
    [
        ({}, None),
        (beats(beat(1)), 0),
        (beats(beat(0, waiting=True), beat(1)), 1),
        (beats(beat(0, step=4), beat(1, step=3)), 1),
        (beats(beat(0, time=2.0), beat(1, time=1.0)), 1),
        (beats(beat(0, phase="end"), beat(1, step=9)), 1),
        (beats(beat(0, waiting=True), beat(1, waiting=True)), None),
        (beats(beat(0, phase="end"), beat(1, waiting=True)), None),
    ],
    ids=[
        "nobody when nobody spoke", "the silent rank", "the rank that does not wait",
        "the busy rank furthest behind", "the busy rank that spoke longest ago",
        "never a finished rank", "nobody when all wait", "nobody when all wait or are finished",
    ],
)  # fmt: skip
def test_blame_goes_to(heartbeats: dict[int, Heartbeat], blamed: int | None) -> None:
    assert culprit(heartbeats, num_ranks=2) == blamed


def test_every_rank_is_described() -> None:
    text = describe(beats(beat(0, waiting=True), beat(1, phase="build", step=0)), num_ranks=3)
    assert text == (
        "rank 0 waits for others in phase train, step 1; rank 1 is busy in phase build, step 0; "
        "rank 2 has said nothing"
    )


WAITING = 'File "/x/torch/distributed/distributed_c10d.py", line 2891 in all_reduce'
IN_BACKWARD = 'File "/x/torch/autograd/graph.py", line 869 in _engine_run_backward'
BUSY = 'File "/x/model.py", line 12 in forward'


def test_of_ranks_that_all_say_they_wait_the_one_outside_communication_is_to_blame() -> None:
    assert culprit_by_stacks({0: WAITING, 1: BUSY, 2: IN_BACKWARD}, 3) == (1, f"is at {BUSY}")


def test_a_rank_that_does_not_answer_a_signal_is_to_blame() -> None:
    found = culprit_by_stacks({0: WAITING}, 2)
    assert found is not None
    assert found[0] == 1
    assert "does not answer a signal" in found[1]


def test_ranks_that_all_wait_or_were_not_asked_leave_nobody_to_blame() -> None:
    assert culprit_by_stacks({0: WAITING, 1: IN_BACKWARD}, 2) is None
    assert culprit_by_stacks({}, 2) is None
