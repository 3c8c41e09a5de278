"""The torchruns of one launch: one on each of its hosts."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence

from meshfit.launch.agent import HostLaunch, agent_command
from meshfit.launch.folder import LaunchFolder
from meshfit.launch.hosts import Seat

_POLL_S = 0.02
_OTHERS_PATIENCE_S = 10.0
"""When one host's torchrun has failed, those of the others may take this long to notice."""

HOSTS_PORT = 29400
"""Where the ranks of several hosts meet on the first of them, unless told otherwise."""


class Agents:
    """Processes that run side by side and end, or fail, together."""

    def __init__(self, processes: Sequence["subprocess.Popen[bytes]"]) -> None:
        self._processes = processes
        self._failed_at_s: float | None = None

    @property
    def leader_pid(self) -> int:
        """Pid of the first host's."""
        return self._processes[0].pid

    @property
    def exit_code(self) -> int | None:
        """0 when all ended well; the first host's that did not; None while none of this is so."""
        codes = [process.poll() for process in self._processes]
        failed = [code for code in codes if code]
        if failed:
            return failed[0]
        return None if None in codes else 0

    def have_ended(self, patience_s: float) -> bool:
        """Whether all have ended after at most ``patience_s``, or one has failed and the others
        do not notice."""
        until_s = time.monotonic() + patience_s
        while not self._is_over():
            if time.monotonic() >= until_s:
                return False
            time.sleep(_POLL_S)
        return True

    def wait(self) -> None:
        """Returns when all have ended."""
        for process in self._processes:
            process.wait()

    def _is_over(self) -> bool:
        if all(process.poll() is not None for process in self._processes):
            return True
        if self._failed_at_s is None and any(process.poll() for process in self._processes):
            self._failed_at_s = time.monotonic()
        failed_at_s = self._failed_at_s
        return failed_at_s is not None and time.monotonic() > failed_at_s + _OTHERS_PATIENCE_S


def start_agents(
    seats: Sequence[Seat],
    files: LaunchFolder,
    *,
    name: str,
    module: str,
    port: int | None,
    environment: Mapping[str, str],
) -> Agents:
    """Starts one agent a seat, in a session of its own, so that Ctrl-C reaches only the supervisor.

    ``name`` is that of the launch; ``environment`` is added to this process's own.
    """
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for index, seat in enumerate(seats):
            processes.append(
                _start(
                    seat,
                    _command(seat, seats, files, name=name, module=module, port=port),
                    files,
                    index,
                    environment,
                )
            )
    except BaseException:
        for process in processes:
            process.kill()
        raise
    return Agents(processes)


def _command(
    seat: Seat,
    seats: Sequence[Seat],
    files: LaunchFolder,
    *,
    name: str,
    module: str,
    port: int | None,
) -> list[str]:
    first = seats[0]
    meets_others = f"{first.host.name}:{port or HOSTS_PORT}"
    asked = HostLaunch(
        num_ranks=seat.num_ranks,
        num_hosts=len(seats),
        is_first_host=seat is first,
        place=seat.host.place,
        launch=name,
        endpoint=meets_others if len(seats) > 1 else f"localhost:{port or 0}",
        log_dir=str(files.host_logs(seat.first_rank)),
        module=module,
        arguments=(str(files.request), str(files.root)),
    )
    parent_pid = os.getpid() if seat.host.keeps_parent else None
    return [*seat.host.prefix, *agent_command(asked, parent_pid=parent_pid)]


def _start(
    seat: Seat,
    command: Sequence[str],
    files: LaunchFolder,
    index: int,
    environment: Mapping[str, str],
) -> "subprocess.Popen[bytes]":
    files.host_logs(seat.first_rank).mkdir(parents=True)
    out_path, err_path = files.torchrun_streams(index)
    with out_path.open("wb") as out, err_path.open("wb") as err:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, **environment, **seat.host.environment},
            start_new_session=True,
        )
