"""Cleaning up after a supervisor that was killed."""

from dataclasses import dataclass
from pathlib import Path

from meshfit.launch.folder import PROCESSES_NAME
from meshfit.launch.processes import GRACE_S, end, read_processes


@dataclass(frozen=True, kw_only=True)
class EndedOrphans:
    """The launch folder they belonged to, and their pids."""

    folder: Path
    pids: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.folder} (pids {', '.join(map(str, self.pids))})"


def end_orphans(run_folder: Path) -> list[EndedOrphans]:
    """Ends what launches of earlier sweeps left running anywhere below ``run_folder``.

    Called by the holder of the folder's lock, so that no recorded launch can be a living sweep's.
    A process that merely has a recorded pid is told apart by its creation time and environment,
    and left alone.

    Returns:
        One entry a launch that had processes left.

    Raises:
        RunError: a process cannot be ended.
    """
    ended = []
    for path in sorted(run_folder.rglob(PROCESSES_NAME)):
        launch = read_processes(path)
        pids = end(launch, grace_s=GRACE_S) if launch else []
        if pids:
            ended.append(EndedOrphans(folder=path.parent, pids=tuple(pids)))
        path.unlink()
    return ended
