"""Where and with what a run was made, as far as it can be told without PyTorch.

A document of plain JSON. What could not be obtained has no key of its own; the reason is under
``absent``, by the name of the key. Nothing here names a person or a folder of theirs.
"""

import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

import meshfit
from meshfit.record.variables import HOST_VARIABLE

_PREFIXES = (
    "NCCL_", "GLOO_", "TORCH_", "PYTORCH_", "CUDA_", "CUBLAS_", "NVIDIA_TF32_", "OMP_", "MKL_",
    "KMP_", "GOMP_", "UCX_", "FI_",
)  # fmt: skip
"""Of environment variables that change speed, memory or results."""
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL")

_ABSENT = "absent"


class Unobtainable(Exception):  # noqa: N818  (an answer, not an error)
    """A fact that cannot be had here, with the reason."""


def gather(facts: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """Each fact under its name, and the reasons of those that could not be had under ``absent``."""
    found: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name, obtain in facts.items():
        try:
            found[name] = obtain()
        except Unobtainable as reason:
            reasons[name] = str(reason)
    return found | ({_ABSENT: reasons} if reasons else {})


def host_environment(ranks: int | None = None) -> dict[str, Any]:
    """Code, software and host. With ``ranks`` on this host, also whether they outnumber its cores."""
    facts: dict[str, Callable[[], Any]] = {
        "meshfit": lambda: meshfit.__version__,
        "revision": code_revision,
        "python": platform.python_version,
        "packages": lambda: package_versions(("numpy", "psutil", "safetensors")),
        "os": lambda: f"{platform.system()} {platform.release()} {platform.machine()}",
        "host": host_name,
        "cpu": _cpu_model,
        "cores_physical": _physical_cores,
        "cores_usable": lambda: len(os.sched_getaffinity(0)),
        "memory_bytes": lambda: int(psutil.virtual_memory().total),
        "load_average_1min": lambda: os.getloadavg()[0],
        "variables": relevant_variables,
    }
    if ranks is not None:
        facts["ranks_on_host"] = lambda: ranks
        facts["oversubscribed"] = lambda: ranks > len(os.sched_getaffinity(0))
    return gather(facts)


def host_name() -> str:
    """Of this host, as who launched this process calls it."""
    return os.environ.get(HOST_VARIABLE) or socket.gethostname()


def code_revision() -> str:
    """Commit of the checkout meshfit runs from, with ``+changes`` when its code differs from it.

    Raises:
        Unobtainable: installed from a package, or no git.
    """
    source = Path(meshfit.__file__).parent
    if shutil.which("git") is None:
        raise Unobtainable("no git on this machine")
    commit = _git(source, "rev-parse", "--short=12", "HEAD")
    tracked = _git(source, "ls-files", "--", ".")
    if not commit or not tracked:
        raise Unobtainable("meshfit is not run from a git checkout")
    return commit + ("+changes" if _git(source, "status", "--porcelain", "--", ".") else "")


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """Installed version of each package; those that are not installed are left out."""
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def relevant_variables(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that change speed, memory or results, by name; the home folder in them is ``~``."""
    variables = os.environ if environment is None else environment
    return {
        name: without_home(variables[name])
        for name in sorted(variables)
        if name.startswith(_PREFIXES) and not _SECRET.search(name)
    }


def without_home(text: str, home: str | None = None) -> str:
    """``text`` with the user's home folder written as ``~``."""
    folder = (home or str(Path.home())).rstrip("/")
    return re.sub(rf"{re.escape(folder)}(?=/|:|,|$)", "~", text) if folder else text


def _git(folder: Path, *arguments: str) -> str:
    """What git says, empty when it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _cpu_model(path: Path = Path("/proc/cpuinfo")) -> str:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    name = match.group(1).strip() if match else platform.processor()
    if not name:
        raise Unobtainable("the operating system does not name the processor")
    return name


def _physical_cores() -> int:
    cores = psutil.cpu_count(logical=False)
    if not cores:
        raise Unobtainable("the operating system does not tell cores from threads")
    return cores
