"""``python -m meshfit.launch.agent``: becomes the torchrun of one launch.

A process in between, because what must happen after ``fork`` and before torchrun (tying the
lifeline) cannot safely be done in a child of a process with threads. It then *becomes* torchrun
through ``exec``, so it has the same pid, session and lifeline and costs no process.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from meshfit.lifeline import end_with_parent
from meshfit.record.variables import AGENT_PID_VARIABLE

_RENDEZVOUS_PATIENCE_S = 300
"""How long ranks may take to find each other: ample, since a busy host is no failure."""

ALONE = "none"
"""torchrun's own name for a launch that nobody else joins."""


@dataclass(frozen=True, kw_only=True)
class HostLaunch:
    """What one host runs of a launch: ``num_ranks`` ranks of ``python -m MODULE ARGUMENTS``.

    Attributes:
        endpoint: ``HOST:PORT`` where all ranks meet, port 0 for a free one.
        is_first_host: of ``num_hosts``, the one that holds the rendezvous.
        place: of this host among ``num_hosts``, which then orders ranks; None: their names do.
        launch: name that all hosts give the rendezvous.
    """

    num_ranks: int
    endpoint: str
    log_dir: str
    module: str
    arguments: Sequence[str] = ()
    num_hosts: int = 1
    is_first_host: bool = True
    place: int | None = None
    launch: str = ALONE


def agent_command(asked: HostLaunch, *, parent_pid: int | None) -> list[str]:
    """The command line that starts this module on one host, for the supervisor ``parent_pid``; None
    where it is started by another, and ends with that one."""
    options = [] if parent_pid is None else [f"--parent={parent_pid}"]
    options += [f"--ranks={asked.num_ranks}"]
    options += [f"--endpoint={asked.endpoint}", f"--log-dir={asked.log_dir}"]
    if asked.num_hosts > 1:
        options += [f"--hosts={asked.num_hosts}", f"--launch={asked.launch}"]
        options += ["--first-host"] if asked.is_first_host else []
        options += [] if asked.place is None else [f"--place={asked.place}"]
    command = [sys.executable, "-m", "meshfit.launch.agent", *options]
    return [*command, asked.module, *asked.arguments]


def torchrun_command(asked: HostLaunch) -> list[str]:
    """torchrun for the ranks of one host, each with its own log files."""
    options = [
        f"--nnodes={asked.num_hosts}",
        f"--nproc-per-node={asked.num_ranks}",
        *_rendezvous(asked),
        f"--rdzv-id={asked.launch}",
        f"--rdzv-endpoint={asked.endpoint}",
        "--max-restarts=0",
        f"--log-dir={asked.log_dir}",
        "--redirects=3",
    ]
    command = [sys.executable, "-m", "torch.distributed.run", *options]
    return [*command, "-m", asked.module, *asked.arguments]


def _rendezvous(asked: HostLaunch) -> list[str]:
    """How hosts find each other: ``static`` where each has its place, else ``c10d``, which orders
    them by name."""
    settings = f"timeout={_RENDEZVOUS_PATIENCE_S}"
    if asked.num_hosts > 1 and asked.place is not None:
        return [
            "--rdzv-backend=static",
            f"--node-rank={asked.place}",
            f"--rdzv-conf={settings}",
        ]
    settings += f",read_timeout={_RENDEZVOUS_PATIENCE_S}"
    if asked.num_hosts > 1:
        settings += f",is_host={int(asked.is_first_host)}"
    return ["--rdzv-backend=c10d", f"--rdzv-conf={settings}"]


def main(argv: Sequence[str] | None = None) -> None:
    """Ties the lifeline to the supervisor and becomes torchrun; never returns."""
    parser = argparse.ArgumentParser(prog="python -m meshfit.launch.agent")
    parser.add_argument("--parent", type=int, help="pid of the supervisor (default: the parent)")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--endpoint", required=True, help="HOST:PORT, port 0 for a free one")
    parser.add_argument("--log-dir", required=True)
    parser.add_argument("--hosts", type=int, default=1, help="how many take part")
    parser.add_argument("--first-host", action="store_true", help="this one holds the rendezvous")
    parser.add_argument("--place", type=int, help="of this host; orders ranks")
    parser.add_argument("--launch", default=ALONE, help="name that all hosts give the rendezvous")
    parser.add_argument("module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)

    end_with_parent(os.getppid() if options.parent is None else options.parent)
    os.environ[AGENT_PID_VARIABLE] = str(os.getpid())
    command = torchrun_command(
        HostLaunch(
            num_ranks=options.ranks,
            endpoint=options.endpoint,
            log_dir=options.log_dir,
            module=options.module,
            arguments=options.arguments,
            num_hosts=options.hosts,
            is_first_host=options.first_host,
            place=options.place,
            launch=options.launch,
        )
    )
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
