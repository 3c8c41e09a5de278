"""Where a job lies, and what it is called by that."""

from dataclasses import dataclass
from pathlib import Path

from meshfit.workload.config_file import is_folder


@dataclass(frozen=True)
class FoundJob:
    """The file of a job."""

    path: Path

    @classmethod
    def at(cls, path: Path) -> "FoundJob":
        """``path`` itself, or ``job.yaml`` in the folder there."""
        return cls(path / "job.yaml" if is_folder(path) else path)

    @property
    def base(self) -> Path:
        """The folder that relative paths in the file count from."""
        return self.path.resolve().parent

    @property
    def name(self) -> str:
        """Of the job, where the file has none: the folder's for a ``job.yaml``."""
        return self.base.name if self.path.stem == "job" else self.path.stem
