"""Making and removing the lab of this machine. There is at most one.

A lab is up when ``UP_FILE`` says so, which is written last and removed first. Whatever else is
found of one was left by a process that was killed, and goes with the next ``up`` or ``down``.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from meshfit.cluster.lab import UP_FILE, lab_that_is_up
from meshfit.cluster.topology import LabSpec
from meshfit.errors import InputError, RunError
from meshfit.interrupt import terminated_as_interrupted
from meshfit.lab.commands import (
    PREFIX,
    Command,
    down_commands,
    host_namespace,
    hosts_file,
    up_commands,
)
from meshfit.record.files import write_json_atomically
from meshfit.record.lock import folder_lock

PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux"}
"""What is run -> the Debian package that has it."""

NAMESPACE_FILES = Path("/etc/netns")
"""``ip netns exec`` shows NAMESPACE_FILES/NAMESPACE/hosts to its command as /etc/hosts."""

_GRACE_S = 5.0


def require_means() -> None:
    """What a lab needs of the system.

    Raises:
        InputError: not root, or a program is missing.
    """
    if os.geteuid() != 0:
        raise InputError(
            "a lab needs root: it makes network namespaces and limits what they send; run this as "
            "root, for instance with sudo"
        )
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        packages = " ".join(dict.fromkeys(PROGRAMS[name] for name in missing))
        raise InputError(f"a lab needs {', '.join(missing)}: apt install {packages}")


def lab_up(lab: LabSpec) -> None:
    """Makes ``lab``, in place of one that is up and idle or of what is left of one.

    Raises:
        InputError: no root, no means, processes run in the lab that is up, or this kernel cannot
            delay packets and ``lab`` asks for it.
        RunError: the system refuses.
    """
    require_means()
    with _lock():
        if pids := _pids(_namespaces_found()):
            raise InputError(
                f"processes {pids} run in the lab that is up: wait for them, or `meshfit lab down` "
                f"ends them"
            )
        _remove()
        try:
            _make(lab)
        except BaseException:
            _remove()
            raise


def lab_down() -> list[str]:
    """Ends whatever runs in the lab and removes it, or what is left of one.

    Returns:
        Namespaces that were removed.

    Raises:
        InputError: no root, no means, or another meshfit runs a job in the lab.
    """
    require_means()
    with _lock():
        return _remove()


@contextmanager
def lab_for(lab: LabSpec) -> Iterator[None]:
    """``lab`` for as long as the block lasts: the one that is up, or one made for it and removed,
    also on SIGTERM, which interrupts the block as Ctrl-C does.

    Raises:
        InputError: another one is up; as ``lab_up``.
    """
    up = lab_that_is_up()
    if up is not None:
        _require_same(up, lab)
        yield
        return
    with terminated_as_interrupted():
        lab_up(lab)
        try:
            yield
        finally:
            lab_down()


@contextmanager
def lab_in_use(lab: LabSpec | None) -> Iterator[None]:
    """Keeps ``lab`` up for as long as the block lasts; without a lab there is nothing to keep.

    Raises:
        InputError: it is not up, or in use; no root.
    """
    if lab is None:
        yield
        return
    require_means()
    with _lock():
        up = lab_that_is_up()
        if up is None:
            raise InputError(
                f"the job's lab is not up: `meshfit lab run JOB` makes it for one job, and "
                f"`{up_line(lab)}` until it is taken down"
            )
        _require_same(up, lab)
        yield


def up_line(lab: LabSpec) -> str:
    """The command that makes ``lab``."""
    latency = f" --latency {lab.latency_s * 1e3:g}ms" if lab.latency_s else ""
    return (
        f"meshfit lab up --hosts {','.join(lab.hosts)} --ranks-per-host {lab.ranks_per_host} "
        f"--between {lab.between_bytes_per_s * 8 / 1e6:g}Mbit{latency}"
    )


def _require_same(up: LabSpec, lab: LabSpec) -> None:
    if up != lab:
        raise InputError(
            f"another lab is up: `{up_line(up)}` made it, and the job's is `{up_line(lab)}`; "
            f"`meshfit lab down` removes the one that is up"
        )


@contextmanager
def _lock() -> Iterator[None]:
    with folder_lock(UP_FILE.parent):
        yield


def _make(lab: LabSpec) -> None:
    for host in lab.hosts:
        path = NAMESPACE_FILES / host_namespace(host) / "hosts"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(hosts_file(lab), encoding="utf-8")
    for command in up_commands(lab):
        _run(command)
    write_json_atomically(UP_FILE, {"lab": lab_document(lab)})


def lab_document(lab: LabSpec) -> dict[str, object]:
    """The lab as ``cluster: {lab: ...}`` takes it; numbers survive exactly."""
    return {
        "hosts": list(lab.hosts),
        "ranks_per_host": lab.ranks_per_host,
        "between": f"{lab.between_bytes_per_s!r} B/s",
        "latency": f"{lab.latency_s!r} s",
    }


def _remove() -> list[str]:
    """Removes every trace of any lab."""
    UP_FILE.unlink(missing_ok=True)
    found = _namespaces_found()
    _end(_pids(found))
    for command in down_commands(found):
        _run(command)
    for folder in NAMESPACE_FILES.glob(f"{PREFIX}*"):
        shutil.rmtree(folder)
    with suppress(OSError):  # missing, or not ours alone
        NAMESPACE_FILES.rmdir()
    return found


def _namespaces_found() -> list[str]:
    """Network namespaces of this machine that are a lab's."""
    names = (line.split()[0] for line in _run(("ip", "netns", "list")).splitlines() if line)
    return sorted(name for name in names if name.startswith(PREFIX))


def _pids(names: Iterable[str]) -> list[int]:
    """Processes in these namespaces."""
    listed = (_run(("ip", "netns", "pids", name)).split() for name in names)
    return sorted({int(pid) for pids in listed for pid in pids})


def _end(pids: Iterable[int]) -> None:
    """SIGTERM, and SIGKILL after some seconds."""
    processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    for process in processes:
        process.terminate()
    _, left = psutil.wait_procs(processes, timeout=_GRACE_S)
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=_GRACE_S)


def _run(command: Command) -> str:
    """What ``command`` prints.

    Raises:
        InputError: it needs netem, which this kernel lacks.
        RunError: it failed.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    said = " ".join(done.stderr.split())
    if "netem" in command:
        raise InputError(f"this kernel cannot delay packets (no netem: {said}); leave out latency")
    raise RunError(f"`{' '.join(command)}` failed: {said or f'exit code {done.returncode}'}")
