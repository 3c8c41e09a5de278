"""``meshfit scale``: one layout on growing numbers of ranks, really run, strong or weak."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from meshfit.cluster.schema import HereBlock
from meshfit.compare.scaling import Scaled, ScalingKind, ScalingPoint, scaling
from meshfit.errors import InputError
from meshfit.files import validate
from meshfit.funnel.check.checking import require_legal
from meshfit.funnel.sweep.fit import FitEnd, fit_layouts
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.job.found import FoundJob
from meshfit.job.kinds import read_job_mapping
from meshfit.job.read import NO_CALIBRATION, read_job_file
from meshfit.job.schema import JobFile
from meshfit.job.spec import Job
from meshfit.mesh.spec import LayoutSpec

DOCUMENT_SCHEMA_VERSION = 1
GROWING_AXES = ("dp_replicate", "dp_shard", "tp", "pp", "cp")


def scale(
    path: Path,
    *,
    kind: ScalingKind,
    ranks: Sequence[int],
    axis: str,
    layout: str | None,
    out: Path | None,
    console: Console,
) -> dict[str, Any]:
    """``scale --json``: every number of ``ranks``, with ``axis`` grown to fill it.

    Raises:
        InputError: the job does not run on this machine, the axis cannot grow so, or a layout is
            illegal.
        RunError: as ``fit``.
    """
    if axis not in GROWING_AXES:
        raise InputError(f"--axis {axis!r} does not grow; use one of {', '.join(GROWING_AXES)}")
    if len(set(ranks)) < 2:
        raise InputError("scaling takes at least two numbers of ranks, e.g. --ranks 1,2,4")
    jobs = [_job_on(path, count, kind, min(ranks), layout) for count in sorted(set(ranks))]
    layouts = [_grown(job, axis) for job in jobs]
    for job, grown in zip(jobs, layouts, strict=True):  # all of them before the first one runs
        require_legal(job, grown, what=f"on {grown.world_size} ranks, layout")
    root = out or RunFolder.of_plan(f"{jobs[0].name} scale {kind}", jobs[0].identity).root
    points = []
    for job, grown in zip(jobs, layouts, strict=True):
        end = fit_layouts(job, [grown], out=root / f"ranks-{grown.world_size}", console=console)
        points.append(_point(job, grown, kind, end))
    return scale_document(kind, axis, scaling(points))


def _job_on(path: Path, ranks: int, kind: ScalingKind, fewest: int, layout: str | None) -> Job:
    """The job on ``ranks`` ranks of this machine; weak scaling grows its batch."""
    found = FoundJob.at(path)
    file = validate(JobFile, read_job_mapping(found.path, "training"), str(found.path))
    cluster = {"here": {}} if file.cluster == "here" else file.cluster
    if not isinstance(cluster, dict) or "here" not in cluster:
        raise InputError("scaling is measured on this machine: set `cluster: here` in the job")
    block = validate(HereBlock, cluster, str(found.path))
    here = block.here.model_dump() | {"ranks": ranks}
    changed = file.model_copy(update={"cluster": {"here": here}, "baseline": None})
    job = read_job_file(
        changed, found.base, name=found.name, layout=layout, calibration=NO_CALIBRATION
    )
    if kind == "strong":
        return job
    batch = job.training.global_batch_size * ranks
    if batch % fewest:
        raise InputError(
            f"a global batch of {job.training.global_batch_size} on {fewest} ranks does not grow to "
            f"{ranks} ranks in whole sequences"
        )
    return replace(job, training=replace(job.training, global_batch_size=batch // fewest),
                   identity=f"{job.identity} weak {ranks}")  # fmt: skip


def _grown(job: Job, axis: str) -> LayoutSpec:
    """The job's layout, one rank where it names none, with ``axis`` as large as its ranks ask for."""
    layout = job.layout or LayoutSpec()
    fixed = layout.world_size // getattr(layout, axis)
    degree, left = divmod(job.topology.num_accelerators, fixed)
    if left or degree == 0:
        raise InputError(
            f"{job.topology.num_accelerators} ranks are no multiple of {fixed}, which the layout's "
            f"other axes take; leave that number out or choose another --axis"
        )
    grown = {axis: degree}
    if axis == "tp":
        grown["sp"] = degree > 1 and (layout.sp or layout.tp == 1)
    if axis == "dp_shard":
        grown["zero_stage"] = (layout.zero_stage or 3) if degree > 1 else 0
    return replace(layout, **grown)


def _point(job: Job, layout: LayoutSpec, kind: ScalingKind, end: FitEnd) -> ScalingPoint:
    (measured,) = end.candidates
    topology, training = job.topology, job.training
    per_rank = training.global_batch_size / layout.world_size
    kept = {"global batch": training.global_batch_size} if kind == "strong" else {
        "sequences a rank": per_rank
    }  # fmt: skip
    conditions = {
        **kept,
        "sequence length": training.sequence_length,
        "accelerator": topology.accelerator.name,
        "ranks share cores": topology.oversubscribed,
        "threads a rank": job.run.threads_per_rank,
        "precision": training.precision.name,
        "micro-batch": layout.micro_batch_size,
        "recompute": layout.recompute,
        "model": job.model.name,
    }
    return ScalingPoint(
        ranks=layout.world_size,
        label=layout.label,
        tokens_per_s=measured.tokens_per_s if measured.outcome == "ok" else None,
        step_time_s=measured.step_time_s,
        global_batch=training.global_batch_size,
        sequence_length=training.sequence_length,
        hardware=f"{topology.num_accelerators} x {topology.accelerator.name}"
        + (", several on a core" if topology.oversubscribed else ""),
        conditions=conditions,
        outcome=measured.outcome,
    )


def scale_document(kind: ScalingKind, axis: str, scaled: Sequence[Scaled]) -> dict[str, Any]:
    """What ``scale --json`` prints: keys of ``compare.scaling``, one row a point."""
    return {
        "schema_version": DOCUMENT_SCHEMA_VERSION,
        "kind": kind,
        "axis": axis,
        "points": [asdict(one.point) | {
            "baseline_ranks": one.baseline_ranks,
            "denominator_tokens_per_s": one.denominator_tokens_per_s,
            "efficiency": one.efficiency,
            "differing": list(one.differing),
            "refused": one.refused,
        } for one in scaled],
    }  # fmt: skip
