"""``python -m meshfit.launch.agent``: becomes the torchrun of one launch.

A process in between, because what must happen after ``fork`` and before torchrun (tying the
lifeline) cannot safely be done in a child of a process with threads. It then *becomes* torchrun
through ``exec``, so it has the same pid, session and lifeline and costs no process.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from meshfit.lifeline import end_with_parent
from meshfit.record.variables import AGENT_PID_VARIABLE

_RENDEZVOUS_PATIENCE_S = 300
"""How long ranks may take to find each other: ample, since a busy host is no failure."""

ALONE = "none"
"""torchrun's own name for a launch that nobody else joins."""


def agent_command(
    *,
    parent_pid: int,
    num_ranks: int,
    endpoint: str,
    log_dir: str,
    module: str,
    arguments: list[str],
    num_hosts: int = 1,
    is_first_host: bool = True,
    launch: str = ALONE,
) -> list[str]:
    """The command line that starts this module on one host of the launch named ``launch``."""
    options = [f"--parent={parent_pid}", f"--ranks={num_ranks}"]
    options += [f"--endpoint={endpoint}", f"--log-dir={log_dir}"]
    if num_hosts > 1:
        options += [f"--hosts={num_hosts}", f"--launch={launch}"]
        options += ["--first-host"] if is_first_host else []
    return [sys.executable, "-m", "meshfit.launch.agent", *options, module, *arguments]


def torchrun_command(
    *,
    num_ranks: int,
    endpoint: str,
    log_dir: str,
    module: str,
    arguments: list[str],
    num_hosts: int = 1,
    is_first_host: bool = True,
    launch: str = ALONE,
) -> list[str]:
    """torchrun for ``num_ranks`` ranks of ``module`` on this host, each with its own log files.

    Of several hosts the first one holds the rendezvous, and ``launch`` names it.
    """
    settings = f"timeout={_RENDEZVOUS_PATIENCE_S},read_timeout={_RENDEZVOUS_PATIENCE_S}"
    if num_hosts > 1:
        settings += f",is_host={int(is_first_host)}"
    options = [
        f"--nnodes={num_hosts}",
        f"--nproc-per-node={num_ranks}",
        "--rdzv-backend=c10d",
        f"--rdzv-id={launch}",
        f"--rdzv-endpoint={endpoint}",
        f"--rdzv-conf={settings}",
        "--max-restarts=0",
        f"--log-dir={log_dir}",
        "--redirects=3",
    ]
    return [sys.executable, "-m", "torch.distributed.run", *options, "-m", module, *arguments]


def main(argv: Sequence[str] | None = None) -> None:
    """Ties the lifeline to the supervisor and becomes torchrun; never returns."""
    parser = argparse.ArgumentParser(prog="python -m meshfit.launch.agent")
    parser.add_argument("--parent", type=int, required=True, help="pid of the supervisor")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--endpoint", required=True, help="HOST:PORT, port 0 for a free one")
    parser.add_argument("--log-dir", required=True)
    parser.add_argument("--hosts", type=int, default=1, help="how many take part")
    parser.add_argument("--first-host", action="store_true", help="this one holds the rendezvous")
    parser.add_argument("--launch", default=ALONE, help="name that all hosts give the rendezvous")
    parser.add_argument("module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)

    end_with_parent(options.parent)
    os.environ[AGENT_PID_VARIABLE] = str(os.getpid())
    command = torchrun_command(
        num_ranks=options.ranks,
        endpoint=options.endpoint,
        log_dir=options.log_dir,
        module=options.module,
        arguments=options.arguments,
        num_hosts=options.hosts,
        is_first_host=options.first_host,
        launch=options.launch,
    )
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
