"""Fit the constants of the time model to published measurements, all families at once.

    python tools/fit_time.py TRAINING.csv [--write] [--leave-one-out]

Prints each constant before and after, and errors by family; ``--write`` rewrites
``predict/constants.csv``; ``--leave-one-out`` fits without each family in turn.
"""

import argparse
import csv
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import meshfit.predict.constants as constants_module
from meshfit.errors import InputError
from meshfit.mesh.candidates import Candidates
from meshfit.predict.calibration import formula_only
from meshfit.predict.constants import TimeConstants, shipped_constants
from meshfit.predict.coverage import why_not_covered
from meshfit.predict.estimate import Basis, step_seconds
from meshfit.predict.fitting import fit_constants
from meshfit.validate.frameworks import read_job
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import NotModelledError, TruthRow, read_rows
from meshfit.validate.scored import time_scored

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Distinct configurations, with the median of their times."""

    jobs: tuple[RowJob, ...]
    seconds: FloatArray
    families: tuple[str, ...]

    def without(self, family: str) -> "Measured":
        kept = [index for index, name in enumerate(self.families) if name != family]
        return Measured(
            jobs=tuple(self.jobs[i] for i in kept),
            seconds=self.seconds[kept],
            families=tuple(self.families[i] for i in kept),
        )

    def predict(self, constants: TimeConstants) -> FloatArray:
        """Seconds of every job."""
        together: dict[object, list[int]] = defaultdict(list)
        for index, job in enumerate(self.jobs):
            key = (id(job.model), job.training, id(job.topology), id(job.profile))
            together[key].append(index)
        out = np.zeros(len(self.jobs))
        for members in together.values():
            job = self.jobs[members[0]]
            basis = Basis(
                model=job.model,
                training=job.training,
                topology=job.topology,
                profile=job.profile,
                calibration=formula_only(job.topology, job.profile.name),
                constants=constants,
            )
            layouts = Candidates.from_layouts([self.jobs[i].layout for i in members])
            out[members] = step_seconds(layouts, basis)
        return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--leave-one-out", action="store_true")
    parser.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()
    measured = read(arguments.file)
    start = shipped_constants()
    fitted = fit_constants(
        measured.predict, measured.seconds, measured.families, start=start, rounds=arguments.rounds
    )
    for name, entry in start.entries.items():
        if entry.is_fitted:
            print(f"{name:24} {entry.value:8.4f} -> {fitted[name]:8.4f}")
    report("before", measured, start)
    report("after", measured, fitted)
    if arguments.leave_one_out:
        for family in sorted(set(measured.families)):
            rest = measured.without(family)
            other = fit_constants(
                rest.predict, rest.seconds, rest.families, start=fitted, rounds=arguments.rounds
            )
            report(f"left out {family}", measured, other, only=family)
    if arguments.write:
        write(fitted)


def read(path: Path) -> Measured:
    """Rows that a time is scored of and that are modelled, equal configurations once."""
    found: dict[object, tuple[RowJob, list[float]]] = {}
    for row in read_rows(path):
        job = job_of(row) if time_scored(row) else None
        if job is None or why_not_covered(job.model) is not None:
            continue
        key = (row.text("family"), id(job.model), job.training, id(job.topology), job.layout)
        found.setdefault(key, (job, []))[1].append(row.number("time_s") or 0.0)
    jobs = tuple(job for job, _ in found.values())
    return Measured(
        jobs=jobs,
        seconds=np.array([float(np.median(times)) for _, times in found.values()]),
        families=tuple(job.row.text("family") for job in jobs),
    )


def job_of(row: TruthRow) -> RowJob | None:
    try:
        return read_job(row)
    except (NotModelledError, InputError):
        return None


def report(title: str, measured: Measured, constants: TimeConstants, only: str = "") -> None:
    error = measured.predict(constants) / measured.seconds - 1
    print(title)
    for family in sorted(set(measured.families)):
        if only and family != only:
            continue
        own = error[[name == family for name in measured.families]]
        print(
            f"  {family:26} {len(own):4}  median {np.median(abs(own)):6.1%}  90th percentile "
            f"{np.percentile(abs(own), 90):6.1%}  bias {np.median(own):+6.1%}"
        )


def write(constants: TimeConstants) -> None:
    path = Path(constants_module.__file__).with_name(constants_module.FILE)
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("name", "value", "low", "high", "fitted", "meaning", "source"))
        for name, entry in constants.entries.items():
            fitted = "yes" if entry.is_fitted else "no"
            value = f"{entry.value:.4g}"
            out.writerow((name, value, entry.low, entry.high, fitted, entry.meaning, entry.source))


if __name__ == "__main__":
    main()
