"""Slurm by its own commands: sbatch, squeue, scancel, and sacct where there is accounting."""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from meshfit.errors import InputError, RunError, shown
from meshfit.record.schema import Outcome
from meshfit.submit.batch_job import BatchJob, JobState, Phase
from meshfit.submit.slurm.script import batch_script, require_options

PROGRAMS = ("sbatch", "squeue", "scancel")

_WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD")
_RUNNING = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT")
_OF_THE_LAUNCH: dict[str, Outcome] = {
    "FAILED": "crash",
    "NODE_FAIL": "crash",
    "BOOT_FAIL": "launch_error",
    "OUT_OF_MEMORY": "out_of_memory",
}
"""Ends that are a launch's own; all others (a person, a limit, a preemption) only interrupt it."""

_SAYS_NOTHING = ("", "None", "NonZeroExitCode")

_JOB_ID = re.compile(r"^(\d+)(?:;.*)?$", re.MULTILINE)
_FIELDS = ("JobID", "State", "Reason", "exit_code")
_WIDTH = 256
_PATIENCE_S = 60

GONE = JobState(
    phase="ended", word="unknown to Slurm", why="forgotten, and no accounting is kept of it"
)


class Slurm:
    """The Slurm that this machine's commands reach."""

    name = "Slurm"

    def __init__(self, options: Mapping[str, str]) -> None:
        require_options(options)
        self._options = options
        missing = [program for program in PROGRAMS if shutil.which(program) is None]
        if missing:
            raise InputError(
                f"--submit slurm needs {', '.join(missing)} on the PATH: run it on a login node"
            )

    def script(self, job: BatchJob) -> tuple[str, str]:
        """``job.sbatch``."""
        return "job.sbatch", batch_script(job, self._options)

    def submit(self, script: Path) -> str:
        """By sbatch."""
        done = _run("sbatch", "--parsable", str(script))
        if done.returncode != 0:
            raise RunError(f"sbatch refused {script}: {_said(done)}")
        ids = _JOB_ID.findall(done.stdout)  # a site's own sbatch may say more
        if not ids:
            raise RunError(f"sbatch names no job for {script}: {shown(done.stdout)}")
        return str(ids[-1])

    def find(self, mark: str) -> str | None:
        """By the comment, as long as Slurm remembers the job."""
        done = _run("squeue", "--noheader", "--states=all", *_format(("JobID", "Comment")))
        if done.returncode != 0:
            raise RunError(f"squeue does not say whether a job is there: {_said(done)}; try again")
        return next((job_id for job_id, comment in _rows(done, 2) if comment == mark), None)

    def states(self, ids: Sequence[str]) -> dict[str, JobState]:
        """What squeue knows; of jobs it has forgotten what sacct does."""
        done = _run("squeue", "--noheader", "--states=all", f"--jobs={','.join(ids)}", *_format())
        if done.returncode != 0 and "Invalid job id" not in done.stderr:
            return {}  # the controller does not answer now
        found = {job_id: state_of(*words) for job_id, *words in _rows(done, len(_FIELDS))}
        return {job_id: found.get(job_id) or _accounted(job_id) for job_id in ids}

    def cancel(self, ids: Sequence[str]) -> None:
        """By scancel, which takes ids of jobs that have ended, too."""
        _run("scancel", *ids)

    def cancel_line(self, ids: Sequence[str]) -> str:
        """scancel."""
        return f"scancel {' '.join(ids)}"


def state_of(word: str, reason: str, exit_code: str) -> JobState:
    """A state from Slurm's word, its reason, and the exit status of the script (``0``, ``256`` as of
    wait(2), or ``1:0``)."""
    word = word.split(maxsplit=1)[0].rstrip("+")
    phase: Phase = "waiting" if word in _WAITING else "running" if word in _RUNNING else "ended"
    if phase != "ended":
        return JobState(phase=phase, word=word, why="" if reason in _SAYS_NOTHING else reason)
    return JobState(
        phase=phase,
        word=word,
        why=_ended_how(word, exit_code) or ("" if reason in _SAYS_NOTHING else reason),
        ended_well=word == "COMPLETED",
        outcome=_OF_THE_LAUNCH.get(word, "interrupted"),
    )


def _ended_how(word: str, status: str) -> str:
    """``exit code 3`` or ``signal 9`` of a script that failed, empty for other ends."""
    if word != "FAILED":
        return ""
    first, colon, second = status.partition(":")
    code, signal = (int(first), int(second)) if colon else (int(first) >> 8, int(first) & 0x7F)
    return f"signal {signal}" if signal else f"exit code {code}"


def _accounted(job_id: str) -> JobState:
    """A job that the controller has forgotten, from accounting, where that is kept."""
    if shutil.which("sacct") is None:
        return GONE
    options = ("--allocations", "--noheader", "--parsable2", "--format=State,ExitCode")
    done = _run("sacct", f"--jobs={job_id}", *options)
    line = next(iter(done.stdout.splitlines()), "")
    if done.returncode != 0 or not line:
        return GONE
    word, _, exit_code = line.partition("|")
    return state_of(word, "", exit_code)


def _rows(done: "subprocess.CompletedProcess[str]", num_fields: int) -> list[list[str]]:
    """Fields of each line that has as many, of what ``_format`` asked for."""
    lines = ([word.strip() for word in line.split("|")] for line in done.stdout.splitlines())
    return [words[:num_fields] for words in lines if len(words) > num_fields]


def _format(fields: Sequence[str] = _FIELDS) -> tuple[str]:
    return (f"--Format={','.join(f'{field}:{_WIDTH}|' for field in fields)}",)


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer for {_PATIENCE_S} s")


def _said(done: "subprocess.CompletedProcess[str]") -> str:
    return " ".join(done.stderr.split()) or f"exit code {done.returncode}"
