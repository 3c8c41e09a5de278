"""The worker on one request after another in the same ranks: ``worker_session FOLDER...``.

Starting takes most of a short run, and ranks are as good as new after each. Every folder holds
``request.json`` and ``variables.json``, what the environment has beside the rest for that run alone.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from unittest.mock import patch

from meshfit.run.worker import main
from tests.rendezvous import rendezvous_at


def run(folder: Path) -> None:
    """One request; what it raises is printed, and the next one's turn comes."""
    if "RANK" in os.environ:
        rendezvous_at(folder / "rendezvous")
    with patch.dict(os.environ, json.loads((folder / "variables.json").read_text())):
        try:
            main([str(folder / "request.json"), str(folder)])
        except Exception:
            traceback.print_exc()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        run(Path(name))
