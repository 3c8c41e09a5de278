"""Where a sweep keeps its files.

::

    FOLDER/
    ├── plan.json             what was decided before anything ran; its hash ties rows to it
    ├── results.jsonl         one line a launch, appended
    ├── weights/              initial weights every layout loads
    ├── reference/            the launch that others are compared with
    ├── candidates/LAYOUT/repeat-N/   request, logs, heartbeats, result of one launch
    ├── fit.json              the comparison, as ``fit --json`` prints it
    ├── report.html
    └── export/               the winner's launch files
"""

from dataclasses import dataclass
from pathlib import Path

from meshfit.mesh.spec import LayoutSpec


@dataclass(frozen=True)
class RunFolder:
    """Paths of one sweep."""

    root: Path

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
