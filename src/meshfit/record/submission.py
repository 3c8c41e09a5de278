"""What a sweep handed to a scheduler, and how far each job has come, as files of its run folder.

::

    FOLDER/jobs/N/
    ├── part.json         which launches the job is to do, written first
    ├── job.sbatch        what was submitted (Kubernetes: trainjob.yaml)
    ├── submitted.json    the scheduler's id of it
    ├── job.log           what the job printed
    ├── under-way.json    the launch it is at; there only while there is one
    ├── results.jsonl     rows of its launches, until they are gathered into the sweep's
    └── ended.json        how it ended; what it had left is gathered
"""

from dataclasses import dataclass
from pathlib import Path

from meshfit.record.schema import SCHEMA_VERSION, Purpose


@dataclass(frozen=True, kw_only=True)
class SubmittedPart:
    """The part of a sweep that one job does.

    Attributes:
        mark: unique; the job carries it.
        scheduler: ``slurm`` or ``kubernetes``: where the job finds its nodes.
        job: path of the job file, ``rank_order`` what goes before its own.
        given_layouts: the sweep is of layouts that were given, not of a shortlist.
        folder: run folder, as the requests of its launches name it.
        tasks: purpose, candidate and repeat of each launch.
    """

    schema_version: int = SCHEMA_VERSION
    mark: str
    scheduler: str
    plan_hash: str
    job: str
    rank_order: str | None
    given_layouts: bool
    folder: str
    tasks: tuple[tuple[Purpose, str, int], ...]


@dataclass(frozen=True, kw_only=True)
class Submission:
    """That the scheduler has taken a job, under ``id``."""

    schema_version: int = SCHEMA_VERSION
    id: str


@dataclass(frozen=True, kw_only=True)
class UnderWay:
    """The launch that a job is at; ``started_at`` in seconds since the epoch."""

    schema_version: int = SCHEMA_VERSION
    task: tuple[Purpose, str, int]
    started_at: float


@dataclass(frozen=True)
class PartFolder:
    """Paths of one job of a sweep."""

    root: Path

    @property
    def part(self) -> Path:
        return self.root / "part.json"

    @property
    def submission(self) -> Path:
        return self.root / "submitted.json"

    @property
    def log(self) -> Path:
        return self.root / "job.log"

    @property
    def under_way(self) -> Path:
        return self.root / "under-way.json"

    @property
    def end(self) -> Path:
        return self.root / "ended.json"


def part_folders(run_folder: Path) -> list[PartFolder]:
    """Those of every job of a sweep, the oldest first."""
    parts = (run_folder / "jobs").glob("*/part.json")
    return [PartFolder(path.parent) for path in sorted(parts, key=_number)]


def open_part_folders(run_folder: Path) -> list[PartFolder]:
    """Those of jobs whose end is not gathered yet."""
    return [files for files in part_folders(run_folder) if not files.end.exists()]


def next_part_folder(run_folder: Path) -> PartFolder:
    """One more, which is made with its first file."""
    taken = [int(path.name) for path in (run_folder / "jobs").glob("*") if path.name.isdigit()]
    return PartFolder(run_folder / "jobs" / str(max(taken, default=0) + 1))


def _number(path: Path) -> int:
    return int(path.parent.name) if path.parent.name.isdigit() else 0
