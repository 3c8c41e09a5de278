"""The folder of one launch, and the promise that it holds one attempt only.

::

    FOLDER/
    ├── request.json       what was asked (written first)
    ├── processes.json     who runs; there only while something may be running
    ├── torchrun.out, .err
    ├── logs/RUN/attempt_0/RANK/{stdout.log,stderr.log,error.json}
    ├── heartbeats/rank-N.json
    ├── result.json        what the worker found
    └── outcome.json       how it ended (written last)
"""

from dataclasses import dataclass
from pathlib import Path

from meshfit.record.files import REQUEST_NAME, RESULT_NAME

PROCESSES_NAME = "processes.json"


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

    @property
    def torchrun_out(self) -> Path:
        return self.root / "torchrun.out"

    @property
    def torchrun_err(self) -> Path:
        return self.root / "torchrun.err"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def result(self) -> Path:
        return self.root / RESULT_NAME

    @property
    def outcome(self) -> Path:
        return self.root / "outcome.json"

    def rank_files(self, name: str) -> dict[int, Path]:
        """Rank -> its log file ``name``, for the ranks that have one (one host: local rank)."""
        paths = self.logs.glob(f"*/attempt_*/*/{name}")
        return {int(path.parent.name): path for path in sorted(paths)}


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
