"""``--calibration FILE`` where the file is not there: a slip for what reads it, the first run for fit."""

import pytest

from meshfit.cli.jobs import calibration_asked
from meshfit.errors import InputError
from meshfit.job.read import NO_CALIBRATION, read_job
from tests.funnel.small_job import write_job


@pytest.mark.parametrize("command", ["check", "plan", "run --in-engine accelerate"])
def test_a_command_that_only_reads_refuses_one_that_is_not_there(said, tmp_path, command):
    job = write_job(tmp_path, "layout: {dp_shard: 2}\n")
    missing = str(tmp_path / "nosuch.jsonl")
    code, _, message = said(*command.split(), str(job), "--calibration", missing)
    assert code == 2
    assert f"--calibration {missing} is not there" in message


def test_a_command_that_remembers_begins_it_and_says_so(tmp_path, capsys):
    missing = str(tmp_path / "new.jsonl")
    assert calibration_asked(missing, False, remembers=True) == missing
    assert "is not there yet" in capsys.readouterr().err


def test_one_that_is_there_is_taken_without_a_word(tmp_path, capsys):
    (tmp_path / "c.jsonl").touch()
    assert calibration_asked(str(tmp_path / "c.jsonl"), False) == str(tmp_path / "c.jsonl")
    assert calibration_asked(None, True) == NO_CALIBRATION
    assert capsys.readouterr().err == ""
    with pytest.raises(InputError, match="exclude each other"):
        calibration_asked("c.jsonl", True)


def test_a_jobs_own_that_is_not_there_yet_is_noted(tmp_path):
    job = read_job(write_job(tmp_path, "calibration: mine.jsonl\n"))
    assert job.calibration == tmp_path / "mine.jsonl"
    assert any("mine.jsonl is not there yet" in note for note in job.notes)
