"""The winner, or any legal layout, as files that start without meshfit."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from meshfit.breakdown import Prediction
from meshfit.compare.candidate import MeasuredCandidate
from meshfit.engines.around.kinds import jobs_around
from meshfit.engines.exports import EXPORTS, RELEASED
from meshfit.engines.handover import Files, Handover, host_script
from meshfit.engines.native.files import SCRIPT, UNVERIFIED, export
from meshfit.errors import InputError
from meshfit.funnel.space.estimating import why_not_modelled
from meshfit.funnel.space.planning import estimate_candidates
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.job.spec import Job
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.spec import LayoutSpec


def export_to_engine(
    job: Job, layout: LayoutSpec, folder: Path, jobs: Sequence[str] = (), engine: str | None = None
) -> list[Path]:
    """Writes the files with which ``engine`` (the job's) starts ``layout``, and ``jobs`` of these kinds
    around them.

    Raises:
        InputError: that engine has none that are known here, or cannot express the layout; or no such
            kind of job, or none that is for it.
    """
    given = handover_of(job, layout)
    return write_files(files_with_jobs(given, jobs, engine), folder)


def files_with_jobs(given: Handover, jobs: Sequence[str], engine: str | None = None) -> Files:
    """The files of an engine and jobs around the one that starts it, by name.

    Raises:
        InputError: as ``files_for_engine``; or no such kind of job, or none that is for it.
    """
    files = files_for_engine(given, engine)
    script = _script_of(files)
    if script is None and jobs:
        raise InputError(
            f"--around: {engine or given.profile.name}'s files are read by a training script of yours, so "
            f"there is none to start here; a job around it is yours, too"
        )
    if script is None:
        return files
    if engine is not None and engine in RELEASED:
        given = RELEASED[engine](given)
    return files | jobs_around(host_script(given, script), jobs)


def _script_of(files: Files) -> str | None:
    """The one of an engine's files that starts it; None where a script of one's own does."""
    return next((name for name in files if name.endswith(".sh")), None)


def files_for_engine(given: Handover, engine: str | None = None) -> Files:
    """The files of an engine, that of the profile where none is named, by name.

    Raises:
        InputError: that engine has none that are known here, or cannot express the layout.
    """
    name = engine or given.profile.name
    if name not in EXPORTS:
        raise InputError(f"engine {name}: files are written for {', '.join(EXPORTS)}")
    return EXPORTS[name](given)


def handover_of(job: Job, layout: LayoutSpec) -> Handover:
    """What the job's engine is given of ``layout``, with what is predicted where that can be."""
    prediction = None
    if why_not_modelled(job, layout) is None:
        estimates, _ = estimate_candidates(job, Candidates.from_layouts([layout]))
        prediction = estimates.prediction(0)
    return Handover(
        name=job.name,
        layout=layout,
        model=job.model,
        training=job.training,
        topology=job.topology,
        profile=job.profile,
        prediction=prediction,
        steps=job.run.steps,
    )


def export_layout(
    job: Job, layout: LayoutSpec, folder: Path, jobs: Sequence[str] = ()
) -> list[Path]:
    """Writes the launch files of ``layout``, with the prediction they rest on, and ``jobs`` of these
    kinds around them (several hosts: a Slurm job in any case).

    Raises:
        InputError: the script cannot express the layout, or no such kind of job.
    """
    given = handover_of(job, layout)
    around = jobs_around(host_script(given, SCRIPT), jobs)
    weights = str(job.weights) if job.weights else None
    paths = _write(job, layout, given.prediction, weights, folder)
    return paths + write_files(around, folder)


def export_winner(job: Job, winner: MeasuredCandidate, folder: RunFolder) -> list[Path]:
    """Writes the winner's launch files beside its run, from the same initial weights."""
    drawn = folder.weights("full") / "weights"
    weights = str(job.weights or Path(os.path.relpath(drawn, folder.export)))
    layout, status = winner.layout, _proved(winner)
    paths = _write(job, layout, winner.predicted, weights, folder.export, status=status)
    around = jobs_around(host_script(handover_of(job, layout), SCRIPT))
    return paths + write_files(around, folder.export)


def _proved(winner: MeasuredCandidate) -> str:
    """What the sweep knows of the winner's layout, for the header of its files."""
    assert winner.parity is not None
    against = winner.parity.kind.replace("_", " ")
    return (
        f"meshfit ran this layout ({winner.tokens_per_s:,.0f} tokens/s, parity {against}); "
        f"this file itself has not been run"
    )


def _write(
    job: Job,
    layout: LayoutSpec,
    prediction: Prediction | None,
    weights: str | None,
    folder: Path,
    *,
    status: str = UNVERIFIED,
) -> list[Path]:
    files = export(
        layout,
        job.model.config,
        job.training,
        weights=weights,
        steps=job.run.steps,
        prediction=prediction,
        rank_order=job.profile.rank_order,
        device_order=job.topology.device_order,
        status=status,
    )
    return write_files(files, folder)


def write_files(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Writes files by name; scripts can be started."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in files.items():
        path = folder / name
        path.write_text(text, encoding="utf-8", errors="surrogateescape")  # as paths are read
        if name.endswith(".sh"):
            path.chmod(0o755)
        paths.append(path)
    return paths
