"""The weights that servers of a run load: the job's own, or random ones written once."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from meshfit.errors import InputError, RunError
from meshfit.serve.job.spec import ServingJob
from meshfit.units import format_bytes
from meshfit.workload.counts import total_parameters

_LAST_LINES = 6

_ELEMENT_BYTES = 4
"""Of random weights, which are written in fp32."""


def weights_folder(job: ServingJob, root: Path) -> Path:
    """A folder with config.json and weights; random ones go below ``root`` and stay there.

    Raises:
        InputError: random ones would not fit on the disk.
        RunError: they cannot be made, with the reason.
    """
    if job.weights is not None:
        return job.weights
    folder = root / "weights"
    if folder.is_dir():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    _require_room(job, root)
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


def _require_room(job: ServingJob, root: Path) -> None:
    needed, free = _ELEMENT_BYTES * total_parameters(job.model), shutil.disk_usage(root).free
    if needed > free:
        raise InputError(
            f"random weights of {job.model.name} take {format_bytes(needed)}, and {format_bytes(free)} "
            f"are free in {root}: give a smaller model, or a folder that holds its weights"
        )
