"""``meshfit topo``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from meshfit.cli.output import AsJson, print_json, print_paths, stdout
from meshfit.cli.topo_cluster import Shown, refuse_accelerator, shown_cluster
from meshfit.cli.topo_drawing import axes_of, axis_document, scene_of, shown_job, write_text
from meshfit.cluster.discover.document import cluster_yaml
from meshfit.errors import InputError
from meshfit.report.draw.ranks import Axis
from meshfit.report.draw.svg import scene_svg
from meshfit.report.draw.tree import scene_tree
from meshfit.units import (
    format_bandwidth,
    format_bytes,
    format_duration,
    format_flops_rate,
)

_HOSTS_SHOWN = 8


def topo(
    cluster: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE ...]",
            help="What tools printed (nvidia-smi, NCCL, ROCm, Slurm, Kubernetes, hwloc), a shorthand "
            "such as '8x8 H100-SXM', a cluster.yaml, or here (the default).",
            show_default=False,
        ),
    ] = None,
    *,
    here: Annotated[bool, typer.Option("--here", help="This machine, by its drivers.")] = False,
    accelerator: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="What the GPUs are, where no file says.", show_default=False
        ),
    ] = None,
    job: Annotated[
        Path | None,
        typer.Option(
            metavar="JOB",
            help="Draw this job's layout, with what each axis sends.",
            show_default=False,
        ),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            metavar="KEY=X,...",
            help="Draw these ranks, as in tp=8,dp_shard=4.",
            show_default=False,
        ),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the drawing here.", show_default=False),
    ] = None,
    yaml: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a cluster.yaml here.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Levels, accelerators, cards and memory of a cluster: read, discovered and drawn."""
    if here and cluster:
        raise InputError(f"--here and {cluster[0]!r}: one of them")
    if job is not None and not cluster and not here:
        if accelerator is not None:
            refuse_accelerator(accelerator, str(job))
        shown = shown_job(job, layout)
    else:
        shown = shown_cluster(cluster or ["here"], accelerator)
    axes = axes_of(shown, job, layout)
    written = _write(shown, axes, svg=svg, yaml=yaml)
    if as_json:
        drawn = [axis_document(axis) for axis in axes]
        print_json(shown.document | ({"axes": drawn} if drawn else {}))
        return
    if shown.found is not None or axes:
        stdout.print(scene_tree(scene_of(shown, axes)))
    else:
        stdout.print(topology_view(shown.document))
    print_paths(written, as_json=False)


def _write(
    shown: Shown, axes: Sequence[Axis], *, svg: Path | None, yaml: Path | None
) -> list[Path]:
    written = []
    if svg is not None:
        write_text(svg, scene_svg(scene_of(shown, axes)))
        written.append(svg)
    if yaml is not None:
        if shown.found is None:
            raise InputError("--yaml is for what was discovered; this cluster is described already")
        write_text(yaml, cluster_yaml(shown.found))
        written.append(yaml)
    return written


def topology_view(document: Mapping[str, Any]) -> RenderableType:
    """The levels as a tree from the outermost, the accelerator below, warnings last."""
    tree = Tree(Text(_headline(document), style="bold"))
    branch = tree
    for level in reversed(document["levels"]):
        branch = branch.add(Text(_level_line(level)))
    branch.add(Text(_accelerator_line(document)))
    hosts = document["hosts"]
    shown = ", ".join(hosts[:_HOSTS_SHOWN])
    more = f" and {len(hosts) - _HOSTS_SHOWN} more" if len(hosts) > _HOSTS_SHOWN else ""
    lines = [Text(f"hosts: {shown}{more}")]
    if document.get("memory_free") is not None:
        lines.append(Text(f"memory free now: {format_bytes(document['memory_free'])}"))
    lines += [Text(f"note: {warning}", style="yellow") for warning in document["warnings"]]
    return Group(tree, *lines)


def _headline(document: Mapping[str, Any]) -> str:
    hosts = len(document["hosts"])
    plural = "host" if hosts == 1 else "hosts"
    return f"{document['accelerators']} x {document['accelerator']} on {hosts} {plural}"


def _level_line(level: Mapping[str, Any]) -> str:
    extras = [
        f"{format_bandwidth(level['bandwidth'])} ({level['from']})",
        format_duration(level["latency"]),
    ]
    if level["oversubscription"] > 1:
        extras.append(f"{level['oversubscription']:g}:1 oversubscribed")
    if level["rails"]:
        extras.append("rails")
    return f"{level['name']}: {level['kind']} of {level['size']}, {', '.join(extras)}"


def _accelerator_line(document: Mapping[str, Any]) -> str:
    peaks = ", ".join(
        f"{precision} {format_flops_rate(rate)}"
        for precision, rate in document["peak_flops_per_s"].items()
    )
    return (
        f"{document['accelerator']}: {format_bytes(document['memory'])} at "
        f"{format_bandwidth(document['memory_bandwidth'])}; peak {peaks}"
    )
