"""Running one candidate: start torchrun, watch it, end it, say how it ended."""

import signal
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from meshfit.launch.agents import Agents, start_agents
from meshfit.launch.evidence import Evidence, Stop, count_oom_kills, gather
from meshfit.launch.folder import LaunchFolder, start_empty
from meshfit.launch.hosts import LaunchHost, seats
from meshfit.launch.orphans import end_orphans
from meshfit.launch.outcome import classify
from meshfit.launch.processes import LaunchProcesses, recorded, running
from meshfit.launch.progress import ProgressWatch
from meshfit.record.files import write_json_atomically
from meshfit.record.heartbeat import Heartbeat, read_heartbeats
from meshfit.record.schema import SCHEMA_VERSION, Failure, Outcome, RunRequest, RunResult
from meshfit.record.variables import CANDIDATE_VARIABLE, LAUNCH_VARIABLE

OnProgress = Callable[[Mapping[int, Heartbeat]], None]

_POLL_S = 0.2
_STACK_PATIENCE_S = 0.5
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True, kw_only=True)
class LaunchOutcome:
    """How one launch ended: a ``failure`` unless the outcome is ok, a ``result`` if it is."""

    outcome: Outcome
    failure: Failure | None
    seconds: float
    result: RunResult | None = None


def launch(
    request: RunRequest,
    folder: Path,
    *,
    deadline_s: float,
    hang_s: float,
    on_progress: OnProgress | None = None,
    module: str = "meshfit.run.worker",
    port: int | None = None,
    hosts: Sequence[LaunchHost] = (),
) -> LaunchOutcome:
    """Runs ``request`` under its own torchrun and returns when no process of it is left.

    What goes wrong in the run is an outcome, not an exception. What an earlier attempt left in
    ``folder`` is ended and moved aside first. Call it from a thread that lives as long as the
    launch: the launch ends with it.

    Args:
        deadline_s: wall-clock time from the start after which it is ended.
        hang_s: how long no rank may make any progress, once all have met.
        on_progress: called a few times a second with each rank's last heartbeat.
        module: run by every rank as ``python -m MODULE REQUEST_FILE FOLDER``.
        port: where ranks meet on the first host; None takes a free one.
        hosts: that ranks fill in order; none: this machine.

    Raises:
        KeyboardInterrupt: Ctrl-C, after the processes have ended and ``folder`` says so.
        RunError: a process cannot be ended.
    """
    end_orphans(folder)
    files = start_empty(folder)
    write_json_atomically(files.request, request)
    num_ranks = request.layout.world_size
    if port is not None and not hosts and (problem := port_problem(port)):
        return _close(files, _not_started(problem))
    started_s, oom_kills = time.monotonic(), count_oom_kills()
    name = uuid.uuid4().hex
    agents = start_agents(
        seats(hosts, num_ranks),
        files,
        name=name,
        module=module,
        port=port,
        environment=_environment(request, name),
    )
    try:
        with recorded(agents.leader_pid, name, files.processes, wait=agents.wait) as processes:
            stop, stop_after_s = _watch(
                agents,
                files,
                num_ranks,
                deadline_s=deadline_s,
                hang_s=hang_s,
                on_progress=on_progress,
            )
            if stop == "hang":
                _ask_for_stacks(files, processes)
            evidence = gather(
                files,
                num_ranks=num_ranks,
                exit_code=agents.exit_code,
                stop=stop,
                stop_after_s=stop_after_s,
                oom_kills=_difference(count_oom_kills(), oom_kills),
            )
    except KeyboardInterrupt:
        _close(files, _interrupted(time.monotonic() - started_s))
        raise
    return _close(files, _judged(evidence, time.monotonic() - started_s))


def _environment(request: RunRequest, name: str) -> dict[str, str]:
    threads = dict.fromkeys(_THREAD_VARIABLES, str(request.threads_per_rank))
    return threads | {LAUNCH_VARIABLE: name, CANDIDATE_VARIABLE: request.candidate}


def _watch(
    agents: Agents,
    files: LaunchFolder,
    num_ranks: int,
    *,
    deadline_s: float,
    hang_s: float,
    on_progress: OnProgress | None,
) -> tuple[Stop | None, float]:
    """Waits until torchrun has ended (None) or must be ended (why, and after how many seconds)."""
    started_s = time.monotonic()
    watch = ProgressWatch(num_ranks=num_ranks, hang_s=hang_s, now_s=started_s)
    while True:
        if agents.have_ended(_POLL_S):
            return None, 0.0
        heartbeats = read_heartbeats(files.root)
        if on_progress:
            on_progress(heartbeats)
        now_s = time.monotonic()
        if watch.hangs(heartbeats, now_s):
            return "hang", watch.patience_s
        if now_s - started_s > deadline_s:
            return "deadline", deadline_s


def _ask_for_stacks(files: LaunchFolder, processes: LaunchProcesses) -> None:
    """Has every rank write its Python stack to its stderr (see ``run.lifeline``)."""
    ranks = {beat.pid for beat in read_heartbeats(files.root).values()}
    for process in running(processes):
        if process.pid in ranks:
            with suppress(psutil.Error):
                process.send_signal(signal.SIGUSR1)
    time.sleep(_STACK_PATIENCE_S)


def _judged(evidence: Evidence, seconds: float) -> LaunchOutcome:
    verdict = classify(evidence)
    return LaunchOutcome(
        outcome=verdict.outcome, failure=verdict.failure, seconds=seconds, result=verdict.result
    )


def port_problem(port: int) -> str | None:
    """Why ranks cannot meet at ``port``; torchrun would take it for another launch's and wait."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("localhost", port))
        except OSError as error:
            return f"port {port} cannot be used: {error.strerror}"
    return None


def _not_started(problem: str) -> LaunchOutcome:
    failure = Failure(message=problem)
    return LaunchOutcome(outcome="launch_error", failure=failure, seconds=0.0)


def _interrupted(seconds: float) -> LaunchOutcome:
    failure = Failure(message="interrupted by Ctrl-C")
    return LaunchOutcome(outcome="interrupted", failure=failure, seconds=seconds)


def _close(files: LaunchFolder, outcome: LaunchOutcome) -> LaunchOutcome:
    """Writes outcome.json; without it, what lies in the folder is an unfinished attempt."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "outcome": outcome.outcome,
        "failure": outcome.failure,
        "seconds": outcome.seconds,
    }
    write_json_atomically(files.outcome, document)
    return outcome


def _difference(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before
