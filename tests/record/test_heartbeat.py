import os
import time
from pathlib import Path

import pytest

from meshfit.record import heartbeat
from meshfit.record.heartbeat import HeartbeatWriter, read_heartbeats


def wait_for_step(folder: Path, step: int) -> None:
    deadline = time.monotonic() + 5
    while read_heartbeats(folder)[0].step != step:
        assert time.monotonic() < deadline, "the last beat was never written"
        time.sleep(0.01)


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files written so far, one entry a write."""
    written: list[Path] = []
    write = heartbeat.write_json_atomically

    def count(path: Path, document: object, *, durable: bool) -> None:
        written.append(path)
        write(path, document, durable=durable)

    monkeypatch.setattr(heartbeat, "write_json_atomically", count)
    return written


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
    writer = HeartbeatWriter(tmp_path, 0, interval_s=1000)
    for phase in ("import", "init", "build"):
        writer.beat(phase)
        assert read_heartbeats(tmp_path)[0].phase == phase
    writer.close()


def test_steps_within_the_interval_cost_no_writes(tmp_path: Path, writes: list[Path]) -> None:
    writer = HeartbeatWriter(tmp_path, 0, interval_s=1000)
    for step in range(100):
        writer.beat("step", step)
    assert len(writes) == 1
    writer.close()


def test_a_rank_that_stops_right_after_a_beat_leaves_that_beat_behind(tmp_path: Path) -> None:
    writer = HeartbeatWriter(tmp_path, 0, interval_s=0.05)
    writer.beat("step", 1)
    writer.beat("step", 2, waiting=True)
    wait_for_step(tmp_path, 2)
    assert read_heartbeats(tmp_path)[0].waiting
    writer.close()


def test_closing_writes_the_last_beat(tmp_path: Path) -> None:
    writer = HeartbeatWriter(tmp_path, 0, interval_s=1000)
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
