"""A Slurm of two nodes on this machine: daemons from Debian's packages, with key, socket and ports of
their own, without systemd and without accounting."""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

NODES = ("n1", "n2")

CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=sched_interval=1,batch_sched_delay=0
KillWait=5
{nodes}
PartitionName=test Nodes=n[1-2] Default=YES MaxTime=60 State=UP
"""

_DAEMONS = ("munged", "slurmctld", "slurmd")
_PATIENCE_S = 30.0


def why_no_slurm() -> str | None:
    """Why no Slurm can be started here; None when one can."""
    if os.geteuid() != 0:
        return "a Slurm of one's own needs root"
    missing = [name for name in (*_DAEMONS, "sbatch", "srun") if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)}: apt-get install slurmctld slurmd slurm-client munge"
    return None


@contextmanager
def slurm_here() -> Iterator[Path]:
    """The configuration file (SLURM_CONF) of a Slurm that is up for as long as the block lasts."""
    # Not pytest's own folder: the path of a socket has at most 108 characters.
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    with ExitStack() as undo:
        atexit.register(undo.close)  # also where a test run is interrupted
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        config = _write_config(folder)
        environment = {**os.environ, "SLURM_CONF": str(config)}
        _start(["munged", "--force", *_munge_files(folder)], environment)
        undo.callback(_stop, folder / "munged.pid")
        _start(["slurmctld", "-c"], environment)
        undo.callback(_stop, folder / "slurmctld.pid")
        for node in NODES:
            _start(["slurmd", "-N", node], environment)
            undo.callback(_stop, folder / f"slurmd.{node}.pid")
        wait_until(lambda: _idle_nodes(environment) == list(NODES))
        yield config


def wait_until(condition: Callable[[], bool], patience_s: float = _PATIENCE_S) -> None:
    until_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < until_s, "too late"
        time.sleep(0.1)


def _write_config(folder: Path) -> Path:
    key = folder / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    host = socket.gethostname()
    controller, *ports = _free_ports(1 + len(NODES))
    nodes = [
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 RealMemory=1000"
        for node, port in zip(NODES, ports, strict=True)
    ]
    config = folder / "slurm.conf"
    config.write_text(
        CONFIG.format(host=host, folder=folder, controller_port=controller, nodes="\n".join(nodes))
    )
    return config


def _munge_files(folder: Path) -> list[str]:
    return [
        f"--key-file={folder}/key",
        f"--socket={folder}/munge.sock",
        f"--pid-file={folder}/munged.pid",
        f"--log-file={folder}/munged.log",
        f"--seed-file={folder}/seed",
    ]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _start(command: list[str], environment: dict[str, str]) -> None:
    """Starts a daemon, which puts itself into the background."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"


def _stop(pid_file: Path) -> None:
    """Ends the daemon of a pid file, if it runs."""
    if not pid_file.exists():
        return
    pid = int(pid_file.read_text())
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def _idle_nodes(environment: dict[str, str]) -> list[str]:
    command = ["sinfo", "--noheader", "--Node", "--states=idle", "--format=%N"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return sorted(done.stdout.split())
