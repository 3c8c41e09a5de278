"""``meshfit run --in-engine``: one layout in an engine installed here, measured by that engine's log."""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from meshfit.breakdown import MemoryBreakdown
from meshfit.engines.handover import Handover
from meshfit.engines.logs.read import read_log
from meshfit.engines.starts import NOT_STARTED, STARTS, EngineStart
from meshfit.errors import InputError, NotInstalledError, nearest_name
from meshfit.funnel.check.checking import require_legal
from meshfit.funnel.check.logged import compared_document, facts_of_job
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.funnel.sweep.handover import files_for_engine, handover_of, write_files
from meshfit.funnel.sweep.sweep_plan import plan_hash
from meshfit.job.spec import Job
from meshfit.launch.evidence import last_line, read_text
from meshfit.launch.folder import start_empty
from meshfit.launch.orphans import end_orphans
from meshfit.launch.outcome import says_out_of_memory
from meshfit.launch.program import ProgramEnd, run_program
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.engine_log import EngineLog, LoggedMemory
from meshfit.record.environment import host_environment, host_name
from meshfit.record.files import write_json_atomically
from meshfit.record.lock import folder_lock
from meshfit.record.schema import Failure, Outcome, RankReport, Record, RunResult
from meshfit.record.store import RecordStore
from meshfit.units import format_duration

OUTPUT = "output.log"
LOG = "engine-log.json"
_VERSION_PATIENCE_S = 120.0
_ERROR = re.compile(r"^(?:\[\w+\]:)?\s*((?:\w+\.)*\w*(?:Error|Exception)\b: .*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class EngineEnd:
    """How a run in an engine ended: ``document`` is what ``run --in-engine --json`` prints."""

    outcome: Outcome
    folder: Path
    document: dict[str, Any]


def require_startable(engine: str) -> None:
    """
    Raises:
        InputError: this version starts no such engine; says which it does, or why not.
    """
    if engine in STARTS:
        return
    known = ", ".join(STARTS)
    if engine in NOT_STARTED:
        raise InputError(
            f"{engine} is not started from here: {NOT_STARTED[engine]}. `meshfit export --to {engine}` "
            f"writes its files, and `meshfit compare --log` reads its log; started are {known}"
        )
    nearest = nearest_name(engine, STARTS) or known
    raise InputError(f"--in-engine {engine!r}: this version starts {known}; try {nearest}")


def run_in_engine(job: Job, *, python: Path, out: Path | None, console: Console) -> EngineEnd:
    """Starts the exported files of ``job.layout`` in its engine, and reads the log.

    Args:
        python: of the environment that the engine is installed in.

    Raises:
        InputError: the job names no layout, an illegal one, or another cluster than this machine; or
            the engine cannot run the layout on these ranks.
        NotInstalledError: the engine is not installed in that environment.
        RunError: a process of it cannot be ended.
    """
    layout = _layout_to_start(job)
    given = handover_of(job, layout)
    weights = str(job.weights) if job.weights else None
    start = STARTS[job.profile.name](given, weights)
    version = installed_version(job.profile.name, python)
    key = plan_hash(job, only=[layout])
    folder = RunFolder(out) if out else RunFolder.of_plan(f"{job.name}-{job.profile.name}", key)
    with folder_lock(folder.root):
        end_orphans(folder.root)
        files = start_empty(folder.root / job.profile.name).root
        write_files({**files_for_engine(given), **start.files}, files)
        console.print(
            f"{' '.join(start.command)}  (in {files})",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        began = datetime.now(UTC)
        ended = run_program(
            start.command,
            files,
            variables=_variables(job, start, python),
            output=files / OUTPUT,
            deadline_s=job.run.deadline_s,
        )
        log, failure = _judged(job, start, ended, files)
        outcome = _outcome(ended, failure)
        RecordStore(folder.root).append(
            Record(
                plan_hash=key,
                candidate=layout.label,
                repeat=0,
                purpose="measure",
                layout=layout,
                outcome=outcome,
                started_at=began.isoformat(timespec="seconds"),
                seconds=ended.seconds,
                result=None if log is None else as_result(log, job, version),
                failure=failure,
                prediction=given.prediction,
                folder=folder.relative(files),
            )
        )
        if log is not None:
            write_json_atomically(files / LOG, log)
    document = _document(job, given, log) | {
        "outcome": outcome,
        "failure": failure and failure.message,
        "seconds": ended.seconds,
        "folder": str(folder.root),
        "installed": version,
    }
    return EngineEnd(outcome=outcome, folder=folder.root, document=document)


def _layout_to_start(job: Job) -> LayoutSpec:
    layout = job.layout
    if layout is None:
        raise InputError("no layout to run: give `layout:` in the job or --layout dp_replicate=4")
    if not job.topology.is_here:
        raise InputError(
            "an engine is started on this machine: set `cluster: here`; elsewhere start the files of "
            "`meshfit export`, and give the log to `meshfit compare --log`"
        )
    require_legal(job, layout)
    return layout


def installed_version(engine: str, python: Path) -> str:
    """Version of the engine's package in the environment of ``python``.

    Raises:
        InputError: no such Python.
        NotInstalledError: the engine is not installed there.
    """
    ask = f"import importlib.metadata as m; print(m.version({engine!r}))"
    try:
        done = subprocess.run(
            [python, "-c", ask],
            capture_output=True,
            text=True,
            timeout=_VERSION_PATIENCE_S,
            check=False,
        )
    except OSError as error:
        raise InputError(f"{python} cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        raise NotInstalledError(
            f"{engine} is not installed in the environment of {python}: pip install {engine} there, or "
            f"name the Python of another one (--engine-python)"
        )
    return done.stdout.strip()


def _variables(job: Job, start: EngineStart, python: Path) -> Mapping[str, str]:
    """The engine's own programs go first on the path; ranks have the job's threads."""
    path = os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, "OMP_NUM_THREADS": str(job.run.threads_per_rank), **start.variables}


def _judged(
    job: Job, start: EngineStart, ended: ProgramEnd, folder: Path
) -> tuple[EngineLog | None, Failure | None]:
    """The log, as far as there is one, and what went wrong."""
    output = folder / OUTPUT
    own = folder / start.log if start.log else None
    assert job.layout is not None
    try:
        log = read_log(own if own and own.exists() else output, facts_of_job(job, job.layout))
    except InputError as error:
        log, problem = None, str(error)
    else:
        problem = ""
    if ended.exit_code == 0:
        return log, Failure(message=problem) if problem else None
    if ended.exit_code is None:
        after = format_duration(ended.seconds)
        return log, Failure(message=f"not done by the deadline of {after} (run.deadline)")
    text = read_text(output)
    errors = [one for one in _ERROR.findall(text) if "ChildFailedError" not in one]
    words = errors[0] if errors else last_line(text)
    return log, Failure(message=f"{words} (all of it: {output})", exit_code=ended.exit_code)


def _outcome(ended: ProgramEnd, failure: Failure | None) -> Outcome:
    if failure is None:
        return "ok"
    if ended.exit_code is None:
        return "hang"
    return "out_of_memory" if says_out_of_memory(failure.message) else "crash"


def _document(job: Job, given: Handover, log: EngineLog | None) -> dict[str, Any]:
    if log is not None:
        return compared_document(job, given.layout, log, warmup_steps=job.run.warmup_steps)
    return {
        "schema_version": 1,
        "job": job.name,
        "label": given.layout.label,
        "layout": given.layout.as_full_json(),
        "engine": job.profile.name,
        "log": None,
        "measured": None,
    }


def as_result(log: EngineLog, job: Job, version: str) -> RunResult | None:
    """A log of every step as the result of a run; None where it leaves out steps, times or losses."""
    steps = [one for one in log.steps if one.start == log.num_starts - 1]
    seconds = [one.step_s for one in steps if one.step_s is not None and one.num_steps == 1]
    losses = [one.loss for one in steps if one.loss is not None]
    norms = [one.gradient_norm for one in steps if one.gradient_norm is not None]
    if not len(steps) == len(seconds) == len(losses) == len(norms):
        return None
    ranks = job.topology.num_accelerators
    return RunResult(
        losses=tuple(losses),
        gradient_norms=tuple(norms),
        useful_tokens_per_step=round(job.training.useful_tokens_per_step),
        ranks=(
            RankReport(
                rank=0,
                host=host_name(),
                step_s=tuple(seconds),
                input_wait_s=(),
                memory=_breakdown(log.memory),
                resident_bytes=log.memory.resident,
            ),
        ),
        environment=host_environment(ranks) | {"engine": f"{log.engine} {version}"},
    )


def _breakdown(memory: LoggedMemory) -> MemoryBreakdown | None:
    if memory.allocated is None:
        return None
    return MemoryBreakdown(unattributed=memory.allocated, reserved=memory.reserved)
