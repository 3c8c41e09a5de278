"""Running another program's command to its end, so that nothing of it stays behind."""

import os
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from meshfit.launch.folder import PROCESSES_NAME
from meshfit.launch.processes import recorded
from meshfit.record.variables import LAUNCH_VARIABLE


@dataclass(frozen=True, kw_only=True)
class ProgramEnd:
    """How it ended: with ``exit_code`` (negative for a signal), or None where the deadline ended it."""

    exit_code: int | None
    seconds: float


def run_program(
    command: Sequence[str],
    folder: Path,
    *,
    variables: Mapping[str, str],
    output: Path,
    deadline_s: float,
) -> ProgramEnd:
    """Runs ``command`` in ``folder`` and returns when no process of it is left.

    Args:
        variables: of its environment, beside this process's own.
        output: file that takes what it prints.
        deadline_s: wall-clock time after which it is ended.

    Raises:
        OSError: it cannot be started.
        RunError: a process cannot be ended.
    """
    name = uuid.uuid4().hex
    environment = {**os.environ, **variables, LAUNCH_VARIABLE: name}
    started_s = time.monotonic()
    with output.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        with recorded(process.pid, name, folder / PROCESSES_NAME, wait=process.wait):
            try:
                exit_code = process.wait(deadline_s)
            except subprocess.TimeoutExpired:
                exit_code = None
    return ProgramEnd(exit_code=exit_code, seconds=time.monotonic() - started_s)
