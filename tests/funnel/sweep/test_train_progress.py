from itertools import pairwise

from rich.console import Console

from meshfit.funnel.sweep.train_progress import TrainProgress
from meshfit.record.heartbeat import Heartbeat


def beats(phase: str, *steps: int) -> dict[int, Heartbeat]:
    return {
        rank: Heartbeat(rank=rank, pid=rank, phase=phase, step=step, time=0.0, waiting=False)
        for rank, step in enumerate(steps)
    }


def lines_of(seen: list[tuple[float, dict[int, Heartbeat]]], first_step: int = 0) -> list[str]:
    """What a log file shows of heartbeats at those times."""
    moment = [0.0]
    console = Console(width=80, force_terminal=False)
    progress = TrainProgress(console, 100, clock=lambda: moment[0])
    with console.capture() as capture, progress.launching(first_step):
        for moment[0], beat in seen:
            progress.update(beat)
    return capture.get().split("\n")[:-1]


def test_a_log_says_when_steps_begin_and_then_every_half_minute():
    seen = [(0.0, beats("build", 0, 0))] + [(1.0 + s, beats("train", s, s)) for s in range(70)]
    assert lines_of(seen) == [
        "train: step 1 of 100",
        "train: step 31 of 100, about 1 min 10 s left",
        "train: step 61 of 100, about 40.0 s left",
    ]


def test_the_slowest_rank_is_shown_and_what_is_left_counts_this_launch_alone():
    seen = [(5.0, beats("train", 50, 50)), (45.0, beats("train", 70, 60))]
    first, second = lines_of(seen, first_step=50)
    assert first == "train: step 51 of 100"
    assert second == "train: step 61 of 100, about 2 min 40 s left"


def test_nothing_is_said_before_a_rank_has_spoken():
    assert lines_of([(0.0, {}), (60.0, beats("init", 0))]) == []


def test_a_terminal_shows_a_bar_and_no_lines():
    console = Console(width=80, force_terminal=True)
    progress = TrainProgress(console, 100)
    with console.capture() as capture, progress.launching(0):
        for step, _ in pairwise(range(40)):
            progress.update(beats("train", step))
    assert "step 1 of" not in capture.get()
    assert "/100" in capture.get()
