"""The folder of one launch, and the promise that it holds one attempt only.

::

    FOLDER/
    ├── request.json       what was asked (written first)
    ├── processes.json     who runs; there only while something may be running
    ├── torchrun.out, .err       of the first host; torchrun-N.out, .err of the others
    ├── logs/from-rank-N/RUN/attempt_0/LOCAL_RANK/{stdout.log,stderr.log,error.json}
    ├── heartbeats/rank-N.json
    ├── result.json        what the worker found
    └── outcome.json       how it ended (written last)
"""

from dataclasses import dataclass
from pathlib import Path

from meshfit.record.files import REQUEST_NAME, RESULT_NAME

PROCESSES_NAME = "processes.json"
_HOST_LOGS = "from-rank-"


@dataclass(frozen=True)
class LaunchFolder:
    """Paths of one launch."""

    root: Path

    @property
    def request(self) -> Path:
        return self.root / REQUEST_NAME

    @property
    def processes(self) -> Path:
        return self.root / PROCESSES_NAME

    def torchrun_streams(self, host: int) -> tuple[Path, Path]:
        """Where torchrun's own output goes on the host of this index: stdout and stderr."""
        name = f"torchrun-{host}" if host else "torchrun"
        return self.root / f"{name}.out", self.root / f"{name}.err"

    def torchrun_errors(self) -> list[Path]:
        """Every torchrun's stderr, the first host's first."""
        return [self.root / "torchrun.err", *sorted(self.root.glob("torchrun-*.err"))]

    def host_logs(self, first_rank: int) -> Path:
        """Folder of the logs of a host's ranks, the first of which is ``first_rank``."""
        return self.root / "logs" / f"{_HOST_LOGS}{first_rank}"

    @property
    def result(self) -> Path:
        return self.root / RESULT_NAME

    @property
    def outcome(self) -> Path:
        return self.root / "outcome.json"

    def rank_files(self, name: str) -> dict[int, Path]:
        """Rank -> its log file ``name``, for the ranks that have one."""
        found = {}
        for logs in sorted((self.root / "logs").glob(f"{_HOST_LOGS}*")):
            first_rank = int(logs.name.removeprefix(_HOST_LOGS))
            for path in sorted(logs.glob(f"*/attempt_*/*/{name}")):
                found[first_rank + int(path.parent.name)] = path
        return found


def start_empty(root: Path) -> LaunchFolder:
    """The folder ``root``, made anew; what an earlier attempt left moves to ``root.earlier-N``."""
    if root.exists():
        root.rename(_free_name(root))
    root.mkdir(parents=True)
    return LaunchFolder(root)


def _free_name(root: Path) -> Path:
    number = 1
    while (candidate := root.with_name(f"{root.name}.earlier-{number}")).exists():
        number += 1
    return candidate
