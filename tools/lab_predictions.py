"""Probe a lab, predict placements from what was measured, run them, and compare.

    sudo python tools/lab_predictions.py

Makes the lab of examples/lab/job.yaml, measures its collectives (``meshfit probe``), predicts every
layout below from these curves, then really runs it, and writes the table to docs/lab-predictions.md,
between its two marks. A run that was interrupted goes on where it stopped, with the curves and the
predictions that it had.

    --out FOLDER  where runs go, and curves.json
    --print       prints the table and leaves the page alone
"""

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from pages import DOCS, write_tables
from rich.console import Console
from sweeps.placed import Placed, run_placed
from sweeps.placed_page import placed_markdown

from meshfit.job.read import read_job
from meshfit.job.spec import Job
from meshfit.lab.machine import lab_for

JOB, PAGE = DOCS.parent / "examples" / "lab" / "job.yaml", DOCS / "lab-predictions.md"

PLACED: tuple[Placed, ...] = (
    ("tp=2,dp_replicate=2,micro_batch_size=8", ""),
    ("tp=2,dp_replicate=2,micro_batch_size=8", "tp,dp_replicate"),
    ("dp_replicate=4,micro_batch_size=4", ""),
    ("dp_shard=4,micro_batch_size=4", ""),
    ("dp_shard=4,zero_stage=2,micro_batch_size=4", ""),
    ("dp_shard=4,zero_stage=1,micro_batch_size=4", ""),
    ("dp_replicate=2,dp_shard=2,micro_batch_size=4", ""),
    ("dp_replicate=2,dp_shard=2,micro_batch_size=4", "dp_shard,dp_replicate"),
    ("pp=2,dp_replicate=2,micro_batch_size=2", ""),
    ("pp=2,dp_replicate=2,micro_batch_size=2", "dp_replicate,pp"),
    ("tp=4,micro_batch_size=16", ""),
)
"""Layouts and the rank orders in which they are run."""

BUDGET, LARGEST = "300 s", "32 MiB"
"""Of the probe."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("meshfit-runs/lab-predictions"))
    parser.add_argument("--print", action="store_true", dest="only_print")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    text = placed_text(read_job(JOB), arguments.out)
    print(text)
    if not arguments.only_print:
        write_tables(PAGE, text)


def placed_text(job: Job, out: Path) -> str:
    """The table of all placements, run in the job's lab."""
    curves = out / "curves.json"
    assert job.topology.lab is not None, "the job's cluster is a lab"
    with lab_for(job.topology.lab):
        if not curves.exists():
            _probe(curves)
        console = Console(stderr=True)
        steps = run_placed(replace(job, curves=curves), PLACED, out=out, console=console)
    return placed_markdown(steps)


def _probe(curves: Path) -> None:
    command = [sys.executable, "-m", "meshfit.cli.main", "probe", "lab", "--out", str(curves)]
    subprocess.run([*command, "--budget", BUDGET, "--largest", LARGEST], check=True)


if __name__ == "__main__":
    main()
