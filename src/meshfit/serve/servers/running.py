"""Servers that run while a block of code does, and no longer."""

import os
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from meshfit.errors import RunError
from meshfit.launch.processes import LaunchProcesses, end
from meshfit.record.variables import AGENT_PID_VARIABLE, LAUNCH_VARIABLE
from meshfit.serve.servers.commands import ServerCommand
from meshfit.serve.servers.tied import tied_command

_POLL_S = 0.2
_GRACE_S = 5.0
_LAST_LINES = 12


@dataclass(frozen=True, kw_only=True)
class StartedHere:
    """Of a server that was started here: its processes, and where its output goes."""

    processes: LaunchProcesses
    log: Path


@dataclass(frozen=True, kw_only=True)
class RunningServer:
    """A server that answers: where, what it calls its model, and what it is in words."""

    url: str
    model: str
    description: str
    started: StartedHere | None = None


Commander = Callable[[int, int], ServerCommand]
"""Gives the command of a replica for its index and its port."""


@contextmanager
def running_servers(
    commander: Commander,
    folder: Path,
    *,
    count: int,
    ready_s: float,
    is_ready: Callable[[str], bool],
) -> Iterator[list[RunningServer]]:
    """``count`` equal servers with logs in ``folder``, all of them answering; however the block ends
    (an error, Ctrl-C, SIGTERM), they end with it, and where this process is killed, too.

    Raises:
        RunError: one ended, or did not answer within ``ready_s``; with the end of its log.
    """
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                _process(commander(index, port), port, folder / f"server-{index}.log")
            )
            for index, port in enumerate(_free_ports(count))
        ]
        deadline_s = time.monotonic() + ready_s
        for one in started:
            one.wait_until_ready(deadline_s, ready_s, is_ready)
        yield [one.server for one in started]


@dataclass(frozen=True, kw_only=True)
class _Started:
    process: subprocess.Popen[bytes]
    server: RunningServer
    log: Path

    def wait_until_ready(
        self, deadline_s: float, ready_s: float, is_ready: Callable[[str], bool]
    ) -> None:
        while not is_ready(self.server.url):
            if (code := self.process.poll()) is not None:
                raise RunError(f"the server ended with {code} before it answered{self._said()}")
            if time.monotonic() > deadline_s:
                raise RunError(f"the server did not answer within {ready_s:g} s{self._said()}")
            time.sleep(_POLL_S)

    def _said(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        return f"; {self.log} ends with:\n" + "\n".join(lines) if lines else ""


@contextmanager
def _process(command: ServerCommand, port: int, log: Path) -> Iterator[_Started]:
    log.parent.mkdir(parents=True, exist_ok=True)
    name = uuid.uuid4().hex
    ties = {LAUNCH_VARIABLE: name, AGENT_PID_VARIABLE: str(os.getpid())}
    with log.open("wb") as output:
        process = subprocess.Popen(
            tied_command(command.argv, parent_pid=os.getpid()),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | command.environment | ties,
            start_new_session=True,
        )
    processes = LaunchProcesses.of_leader(process.pid, name)
    server = RunningServer(
        url=f"http://127.0.0.1:{port}",
        model=command.name,
        description=command.description,
        started=StartedHere(processes=processes, log=log),
    )
    try:
        yield _Started(process=process, server=server, log=log)
    finally:
        end(processes, grace_s=_GRACE_S)
        process.wait()


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
