import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from meshfit.record import heartbeat
from meshfit.record.heartbeat import HeartbeatWriter, read_heartbeats


def test_a_folder_without_heartbeats_has_none(tmp_path: Path) -> None:
    assert read_heartbeats(tmp_path) == {}


def test_every_rank_is_read_with_what_it_last_said(tmp_path: Path) -> None:
    for rank in (11, 2):
        writer = HeartbeatWriter(tmp_path, rank)
        writer.beat("step", rank * 10, waiting=rank == 2)
        writer.close()
    beats = read_heartbeats(tmp_path)
    assert list(beats) == [2, 11]
    assert (beats[2].step, beats[2].waiting) == (20, True)
    assert (beats[11].step, beats[11].waiting) == (110, False)
    assert beats[2].pid == os.getpid()
    assert abs(beats[2].time - time.time()) < 60


def test_a_new_phase_is_written_at_once(tmp_path: Path) -> None:
    writer = HeartbeatWriter(tmp_path, 0)
    for phase in ("import", "init", "build"):
        writer.beat(phase)
        assert read_heartbeats(tmp_path)[0].phase == phase
    writer.close()


def test_every_beat_is_there_when_it_returns_also_a_shorter_one(tmp_path: Path) -> None:
    writer = HeartbeatWriter(tmp_path, 0)
    for step, waiting in ((1, False), (123456, True), (2, True), (2, False)):
        writer.beat("step", step, waiting=waiting)
        beat = read_heartbeats(tmp_path)[0]
        assert (beat.step, beat.waiting) == (step, waiting)
    writer.close()


def test_two_beats_a_step_take_less_than_a_hundredth_of_a_step_of_50_ms(tmp_path: Path) -> None:
    writer = HeartbeatWriter(tmp_path, 0)
    writer.beat("step")
    begin_s = time.thread_time()
    for step in range(500):
        writer.beat("step", step)
        writer.beat("step", step, waiting=True)
    assert (time.thread_time() - begin_s) / 500 < 0.01 * 0.050
    writer.close()


def test_a_rank_that_is_killed_right_after_a_beat_leaves_that_beat_behind(tmp_path: Path) -> None:
    beats = (
        "import os, signal, sys; from pathlib import Path; "
        "from meshfit.record.heartbeat import HeartbeatWriter; "
        "writer = HeartbeatWriter(Path(sys.argv[1]), 0); "
        "writer.beat('step', 1); writer.beat('step', 2, waiting=True); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", beats, str(tmp_path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    beat = read_heartbeats(tmp_path)[0]
    assert (beat.step, beat.waiting) == (2, True)


def test_closing_keeps_the_last_beat(tmp_path: Path) -> None:
    writer = HeartbeatWriter(tmp_path, 0)
    writer.beat("step", 1)
    writer.beat("step", 2)
    writer.close()
    assert read_heartbeats(tmp_path)[0].step == 2


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"rank": 0, "surprise": 1}'])
def test_a_file_that_is_no_heartbeat_counts_as_none(tmp_path: Path, text: str) -> None:
    writer = HeartbeatWriter(tmp_path, 1)
    writer.beat("step", 3)
    writer.close()
    (tmp_path / heartbeat.HEARTBEAT_FOLDER / "rank-0.json").write_text(text)
    assert list(read_heartbeats(tmp_path)) == [1]
