"""Slurm's answers as its 22.05 gave them, through stand-ins for its commands."""

from pathlib import Path

import pytest

from meshfit.errors import InputError, RunError
from meshfit.submit.slurm.commands import GONE, Slurm, state_of


class Programs:
    """Programs of a folder that is first, or alone, on the PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        for name in ("sbatch", "squeue", "scancel"):
            self.write(name, "")
        monkeypatch.setenv("PATH", str(folder))

    def write(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    return Programs(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("word", "reason", "status", "shown", "outcome"),
    [
        ("PENDING", "Resources", "0", "PENDING (Resources)", None),
        ("RUNNING", "None", "0", "RUNNING", None),
        ("COMPLETING", "None", "0", "COMPLETING", None),
        ("CANCELLED", "None", "15", "CANCELLED", "interrupted"),
        (
            "CANCELLED",
            "DependencyNeverSatisfied",
            "0",
            "CANCELLED (DependencyNeverSatisfied)",
            "interrupted",
        ),
        ("TIMEOUT", "TimeLimit", "0", "TIMEOUT (TimeLimit)", "interrupted"),
        ("PREEMPTED", "None", "0", "PREEMPTED", "interrupted"),
        ("FAILED", "NonZeroExitCode", "768", "FAILED (exit code 3)", "crash"),
        ("FAILED", "JobLaunchFailure", "9", "FAILED (signal 9)", "crash"),
        ("NODE_FAIL", "NodeDown", "0", "NODE_FAIL (NodeDown)", "crash"),
        ("OUT_OF_MEMORY", "OutOfMemory", "32000", "OUT_OF_MEMORY (OutOfMemory)", "out_of_memory"),
    ],
)
def test_states(word, reason, status, shown, outcome):
    state = state_of(word, reason, status)
    assert str(state) == shown
    assert (state.phase == "ended") == (outcome is not None)
    assert outcome in (None, state.outcome)
    assert not state.ended_well


def test_only_a_completed_job_has_ended_well():
    assert state_of("COMPLETED", "None", "0").ended_well


def test_accounting_names_who_cancelled_and_gives_code_and_signal():
    assert state_of("CANCELLED by 1000", "", "0:15").word == "CANCELLED"
    assert state_of("FAILED", "", "0:9").why == "signal 9"
    assert state_of("FAILED", "", "3:0").why == "exit code 3"


def test_without_slurm_one_message_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="needs sbatch, squeue, scancel on the PATH"):
        Slurm({})


def test_the_id_is_read_without_the_cluster_that_may_follow(programs):
    programs.write("sbatch", "echo '12;gpu-cluster'")
    assert Slurm({}).submit(Path("job.sbatch")) == "12"


def test_what_sbatch_refuses_is_said_in_its_words(programs):
    programs.write("sbatch", "echo 'sbatch: error: invalid partition' >&2; exit 1")
    with pytest.raises(RunError, match=r"refused job\.sbatch: sbatch: error: invalid partition"):
        Slurm({}).submit(Path("job.sbatch"))


def test_jobs_that_the_controller_has_forgotten_have_ended(programs):
    programs.write("squeue", "echo ' 7 | RUNNING | None | 0 |'")
    states = Slurm({}).states(["7", "8"])
    assert (states["7"].phase, states["8"]) == ("running", GONE)
    programs.write("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert Slurm({}).states(["8"]) == {"8": GONE}


def test_accounting_is_asked_where_there_is_any(programs):
    programs.write("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    programs.write("sacct", "echo 'TIMEOUT|0:0'")
    assert Slurm({}).states(["8"])["8"].word == "TIMEOUT"
    programs.write("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    assert Slurm({}).states(["8"])["8"] == GONE


def test_a_controller_that_does_not_answer_says_nothing_of_any_job(programs):
    programs.write("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert Slurm({}).states(["8"]) == {}


def test_a_job_whose_id_was_lost_is_found_by_its_mark(programs):
    programs.write("squeue", "printf '7 |(null) |\\n8 |abc |\\n'")
    assert Slurm({}).find("abc") == "8"
    assert Slurm({}).find("xyz") is None


def test_a_controller_that_does_not_answer_has_not_said_that_there_is_no_job(programs):
    programs.write("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(RunError, match="does not say whether a job is there: Unable to contact"):
        Slurm({}).find("abc")


def test_what_a_site_prints_besides_is_no_job(programs):
    programs.write("sbatch", "printf 'Welcome!\\nyou have 3 hours left\\n12\\n'")
    assert Slurm({}).submit(Path("job.sbatch")) == "12"
    programs.write("sbatch", "echo Welcome")
    with pytest.raises(RunError, match="names no job"):
        Slurm({}).submit(Path("job.sbatch"))
    programs.write("squeue", "printf 'maintenance | tonight\\n 7 | RUNNING | None | 0 |\\n'")
    assert Slurm({}).states(["7"])["7"].phase == "running"
