"""Running a probe: a torchrun of its own on every host, until the curves are there."""

import os
import time
import uuid
from collections.abc import Sequence
from math import prod
from pathlib import Path

from meshfit.errors import RunError
from meshfit.launch.agents import start_agents
from meshfit.launch.folder import start_empty
from meshfit.launch.hosts import LaunchHost, seats
from meshfit.launch.processes import recorded
from meshfit.record.files import read_document, write_json_atomically
from meshfit.record.probe import ProbeRecord, ProbeRequest
from meshfit.record.variables import LAUNCH_VARIABLE

MODULE = "meshfit.measure.probe"
_POLL_S = 0.2
_LAST_LINES = 15


def launch_probe(
    request: ProbeRequest,
    folder: Path,
    *,
    deadline_s: float,
    hosts: Sequence[LaunchHost] = (),
    port: int | None = None,
) -> ProbeRecord:
    """What the ranks of all hosts measured; returns when no process of them is left.

    Raises:
        RunError: they failed, or took longer than ``deadline_s``.
    """
    files = start_empty(folder)
    write_json_atomically(files.request, request)
    name = uuid.uuid4().hex
    agents = start_agents(
        seats(hosts, prod(request.level_sizes)),
        files,
        name=name,
        module=MODULE,
        port=port,
        environment={"OMP_NUM_THREADS": "1", LAUNCH_VARIABLE: name},
    )
    until_s = time.monotonic() + deadline_s
    with recorded(agents.leader_pid, name, files.processes, wait=agents.wait):
        while not agents.have_ended(_POLL_S):
            if time.monotonic() > until_s:
                raise RunError(f"the probe took longer than {deadline_s:.0f} s")
        if agents.exit_code != 0:
            raise RunError(f"the probe failed:\n{_said(files.torchrun_errors(), folder)}")
    return read_document(ProbeRecord, files.result)


def _said(errors: Sequence[Path], folder: Path) -> str:
    """The last words of the ranks, else those of torchrun."""
    logs = [path for path in sorted(folder.glob("logs/**/stderr.log")) if path.stat().st_size]
    paths = logs or [path for path in errors if path.exists()]
    text = paths[0].read_text(errors="replace") if paths else ""
    return os.linesep.join(text.splitlines()[-_LAST_LINES:])
