"""A layout on the cluster that ``meshfit topo`` shows, and files that it writes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meshfit.cli.topo_cluster import Shown
from meshfit.cluster.document import topology_document
from meshfit.errors import InputError
from meshfit.job.layout import parse_layout_text
from meshfit.job.read import read_job
from meshfit.job.spec import Job
from meshfit.mesh.spec import LAYOUT_KEYS, LayoutSpec, make_layout
from meshfit.report.draw.ranks import Axis, axes_on
from meshfit.report.draw.scene import Scene, scene_of_discovery, scene_of_topology


def shown_job(job: Path, layout: str | None) -> Shown:
    """The cluster of a job."""
    topology = read_job(job, layout=layout, to_run=False).topology
    return Shown(document=topology_document(topology), topology=topology, found=None)


def axes_of(shown: Shown, job: Path | None, layout: str | None) -> tuple[Axis, ...]:
    """Axes of the job's layout with what they send, or of a layout alone; none without either.

    Raises:
        InputError: the layout has unknown keys or another number of ranks than the cluster.
    """
    if job is not None:
        read = read_job(job, layout=layout, to_run=False)
        if read.layout is None:
            raise InputError("no layout to draw: give `layout:` in the job or --layout tp=4,pp=2")
        sent = _sent_bytes(read, read.layout)
        return axes_on(read.layout, shown.whole(), read.profile.rank_order, sent)
    if layout is None:
        return ()
    return axes_on(_layout(layout), shown.whole())


def scene_of(shown: Shown, axes: Sequence[Axis]) -> Scene:
    """What tools say in detail where they did, else the levels."""
    if shown.found is not None:
        return scene_of_discovery(shown.found, axes)
    return scene_of_topology(shown.whole(), axes, shown.document["warnings"])


def axis_document(axis: Axis) -> dict[str, Any]:
    """``bytes`` that each rank of the axis sends in a step, null where no job says."""
    return {
        "axis": axis.name,
        "degree": axis.degree,
        "level": axis.level,
        "bytes": axis.bytes_per_step,
    }


def write_text(path: Path, text: str) -> None:
    """Writes a file. Raises InputError where that cannot be done."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None


def _layout(text: str) -> LayoutSpec:
    keys = parse_layout_text(text)
    unknown = [key for key in keys if key not in LAYOUT_KEYS]
    if unknown:
        raise InputError(f"unknown key {unknown[0]!r} of a layout; known: {', '.join(LAYOUT_KEYS)}")
    return make_layout(keys)


def _sent_bytes(job: Job, layout: LayoutSpec) -> dict[str, float]:
    """Bytes that a rank sends along each axis in a step, of the pipeline rank that sends most."""
    from meshfit.funnel.explain.explaining import explain_document

    rows = explain_document(job, layout)["rows"]
    return {
        row["axis"]: float(sum(found["bytes"] for found in row["collectives"]))
        for row in rows
        if row["collectives"] is not None
    }
