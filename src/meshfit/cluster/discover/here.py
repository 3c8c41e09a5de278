"""This machine as a source like any other."""

import importlib
import socket
from dataclasses import replace
from pathlib import Path

from meshfit.cluster.discover.facts import HostFacts, Reading
from meshfit.cluster.discover.here_amd import amd_facts
from meshfit.cluster.discover.here_nvml import nvml_facts
from meshfit.cluster.discover.here_sysfs import with_sysfs
from meshfit.cluster.nvml import visible_handles

_SYS = Path("/sys")


def read_here(sys: Path = _SYS) -> Reading:
    """GPUs by NVML or amdsmi (none where neither finds any), NUMA nodes and cards by sysfs."""
    found = _nvidia() or _amd()
    source = "sysfs" if found is None else "driver and sysfs"
    host = with_sysfs(found or HostFacts(gpus=()), sys)
    return Reading(source="here", format=source, hosts=(replace(host, host=socket.gethostname()),))


def _nvidia() -> HostFacts | None:
    """None without a driver or a visible GPU."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # no package, no library, no driver: each means no GPU can be used
        return None
    try:
        handles = visible_handles(nvml)
        return nvml_facts(nvml, handles) if handles else None
    finally:
        nvml.nvmlShutdown()


def _amd() -> HostFacts | None:
    try:
        smi = importlib.import_module("amdsmi")
        smi.amdsmi_init()
    except Exception:  # as above
        return None
    try:
        facts = amd_facts(smi)
        return facts if facts.gpus else None
    finally:
        smi.amdsmi_shut_down()
