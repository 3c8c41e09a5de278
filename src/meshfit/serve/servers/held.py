"""What a server that was started here holds, by the counters of the machine."""

import psutil

from meshfit.launch.processes import LaunchProcesses, running
from meshfit.record.serving import ServerMemory
from meshfit.serve.servers.claims import server_claims
from meshfit.serve.servers.running import RunningServer

RESIDENT = "resident memory of its processes, shared pages once"


def server_memory(server: RunningServer) -> ServerMemory | None:
    """Claims and counters of a server; None of one that was not started here."""
    if server.started is None:
        return None
    return ServerMemory(
        claims=server_claims(server.started.log),
        held_bytes=_resident_bytes(server.started.processes),
        counter=RESIDENT,
    )


def _resident_bytes(processes: LaunchProcesses) -> int:
    """Proportional set sizes, where the kernel has them; else resident ones."""
    held = 0
    for process in running(processes):
        try:
            info = process.memory_full_info()
        except psutil.Error:  # it has just ended
            continue
        held += getattr(info, "pss", 0) or info.rss
    return int(held)
