"""``meshfit export``."""

from pathlib import Path
from typing import Annotated

import typer

from meshfit.cli.jobs import JobPath, LayoutText, RankOrderText
from meshfit.cli.output import AsJson, print_paths
from meshfit.engines.abilities import OWN_EXPORT, engine_of_export, export_names
from meshfit.engines.exports import SERVER_EXPORTS
from meshfit.errors import InputError, nearest_name
from meshfit.funnel.check.checking import require_legal
from meshfit.funnel.sweep.handover import export_layout, export_to_engine
from meshfit.funnel.sweep.server_handover import export_server
from meshfit.job.read import read_job
from meshfit.serve.job.read import read_serving_job


def export(
    job: JobPath,
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="ENGINE",
            help="torchrun: a plain PyTorch script without meshfit; or torchtitan, megatron, "
            "megatron_bridge, deepspeed, accelerate; for a serving job vllm, sglang.",
        ),
    ] = OWN_EXPORT,
    layout: LayoutText = None,
    rank_order: RankOrderText = None,
    around: Annotated[
        list[str] | None,
        typer.Option(
            "--around",
            metavar="KIND",
            help="Also a job around the script (may be repeated): slurm (comes along by itself where a "
            "layout spans hosts), trainjob (Kubernetes, Kubeflow Trainer), leaderworkerset "
            "(Kubernetes, servers), skypilot.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="To write into.")] = Path(
        "export"
    ),
    as_json: AsJson = False,
) -> None:
    """Write launch files for a layout (the job's, or --layout)."""
    if to not in export_names():
        nearest = nearest_name(to, export_names()) or OWN_EXPORT
        raise InputError(
            f"--to {to!r}: this version exports to {', '.join(export_names())}; try {nearest}"
        )
    if to in SERVER_EXPORTS:
        if rank_order is not None:
            raise InputError(
                f"--rank-order is for engines that train; {to} has an order of its own"
            )
        print_paths(_export_server(job, to, layout, out, around or []), as_json=as_json)
        return
    is_native = to == OWN_EXPORT
    read = read_job(
        job,
        layout=layout,
        rank_order=rank_order,
        engine=None if is_native else engine_of_export(to),
        to_run=is_native,
    )
    if read.layout is None:
        raise InputError("no layout to export: give `layout:` in the job or --layout tp=4,pp=2")
    require_legal(read, read.layout)
    try:
        if is_native:
            paths = export_layout(read, read.layout, out, around or [])
        else:
            paths = export_to_engine(read, read.layout, out, around or [], to)
    except OSError as error:
        raise InputError(f"--out {out} cannot be written: {error.strerror}") from None
    print_paths(paths, as_json=as_json)


def _export_server(
    job: Path, engine: str, layout: str | None, out: Path, around: list[str]
) -> list[Path]:
    try:
        return export_server(read_serving_job(job, layout=layout), engine, out, around)
    except OSError as error:
        raise InputError(f"--out {out} cannot be written: {error.strerror}") from None
