"""The weights that servers of a run load: the job's own, or random ones written once."""

import json
import subprocess
import sys
from pathlib import Path

from meshfit.errors import RunError
from meshfit.serve.job import ServingJob

_LAST_LINES = 6


def weights_folder(job: ServingJob, root: Path) -> Path:
    """A folder with config.json and weights; random ones go below ``root`` and stay there.

    Raises:
        RunError: they cannot be made, with the reason.
    """
    if job.weights is not None:
        return job.weights
    folder = root / "weights"
    if folder.is_dir():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    config = root / "config.json"
    config.write_text(json.dumps(dict(job.model.config)), encoding="utf-8")
    module = ("-m", "meshfit.run.serving.random_weights")
    done = subprocess.run(
        (sys.executable, *module, str(config), str(folder)),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = "\n".join(done.stderr.splitlines()[-_LAST_LINES:])
        raise RunError(f"random weights of {job.model.name} cannot be written:\n{said}")
    return folder
