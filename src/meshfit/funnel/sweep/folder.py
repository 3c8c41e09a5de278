"""Where a sweep keeps its files.

::

    FOLDER/
    ├── plan.json             what was decided before anything ran; its hash ties rows to it
    ├── results.jsonl         one line a launch, appended
    ├── weights/              initial weights every layout loads
    ├── reference/            the launch that others are compared with
    ├── candidates/LAYOUT/repeat-N/   request, logs, heartbeats, result of one launch
    ├── jobs/N/               what was submitted to a cluster's scheduler (record.submission)
    ├── fit.json              the comparison, as ``fit --json`` prints it
    ├── report.html
    └── export/               the winner's launch files
"""

import re
from dataclasses import dataclass
from pathlib import Path

from meshfit.mesh.spec import LayoutSpec

_LONGEST_NAME = 60  # characters, of up to four bytes each


@dataclass(frozen=True)
class RunFolder:
    """Paths of one sweep."""

    root: Path

    @classmethod
    def of_plan(cls, name: str, plan_hash: str) -> "RunFolder":
        """Where the sweep of a job goes by default: one folder below ``meshfit-runs``, named after
        the job as far as a folder can be."""
        safe = re.sub(r"[^\w. +=-]+", "-", name).strip(". ")[:_LONGEST_NAME]
        return cls(Path("meshfit-runs") / f"{safe or 'job'}-{plan_hash[:8]}")

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    @property
    def document(self) -> Path:
        return self.root / "fit.json"

    @property
    def page(self) -> Path:
        return self.root / "report.html"

    @property
    def export(self) -> Path:
        return self.root / "export"

    def weights(self, name: str) -> Path:
        """Folder of the launch that writes the weights of the ``full`` or the ``reduced`` model."""
        return self.root / "weights" / name

    def reference(self, name: str) -> Path:
        return self.root / "reference" / name

    def launch(self, layout: LayoutSpec, purpose: str, repeat: int) -> Path:
        name = f"repeat-{repeat}" if purpose == "measure" else purpose
        return self.root / "candidates" / layout.slug / name

    def relative(self, path: Path) -> str:
        return str(path.relative_to(self.root))
