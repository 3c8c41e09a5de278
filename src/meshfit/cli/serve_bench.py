"""``meshfit serve bench``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from meshfit.cli.output import AsJson, print_json, stdout
from meshfit.cli.serve_simulate import ServingLayoutText, at_rate
from meshfit.errors import InputError, MeshfitError
from meshfit.record.files import write_json_atomically
from meshfit.record.serving import ServingRecord
from meshfit.serve.bench.benchmark import Benchmark, ClientName
from meshfit.serve.bench.document import bench_document
from meshfit.serve.bench.http import model_at, require_client
from meshfit.serve.bench.launched import bench_launched
from meshfit.serve.bench.llmd import llmd_report
from meshfit.serve.bench.measured import Measured, measured
from meshfit.serve.bench.suspicion import links_of
from meshfit.serve.job.clusters import topology_for
from meshfit.serve.job.read import read_serving_job
from meshfit.serve.job.spec import ServingJob
from meshfit.serve.servers.commands import ServerKind
from meshfit.serve.servers.running import RunningServer
from meshfit.serve.setting.layout import ServingLayout
from meshfit.serve.simulate.deployment import predicted_deployment
from meshfit.serve.simulate.simulation import simulate

MISSED = 1

LaunchedServer = Annotated[
    ServerKind | None,
    typer.Option(
        "--server",
        help="Start such a server here for the job's layout, and stop it.",
        show_default=False,
    ),
]


def bench(
    target: Annotated[
        str, typer.Argument(metavar="URL|JOB", help="A server; with --server, the job.")
    ],
    *,
    job: Annotated[
        Path | None,
        typer.Option(
            "--job",
            metavar="JOB",
            help="Whose traffic a URL is driven with.",
            show_default=False,
        ),
    ] = None,
    server: LaunchedServer = None,
    client: Annotated[
        ClientName,
        typer.Option(help="Who sends: our own client, or a tool that is installed."),
    ] = "own",
    layout: ServingLayoutText = None,
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Requests a second, in place of the job's.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="For records and logs.")] = Path(
        "meshfit-runs/serve-bench"
    ),
    llmd: Annotated[
        Path | None,
        typer.Option(
            "--llmd",
            metavar="FILE",
            help="Also write llm-d's benchmark report (0.1) to this file.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Drive a real server with a job's traffic, open loop, and compare it with its prediction."""
    from meshfit.report.serving.bench import bench_view

    if client == "own":
        require_client()
    path = Path(target) if server else job
    if path is None:
        raise InputError("whose traffic? Give --job JOB beside the URL (or --server and a job)")
    read = read_serving_job(path, layout=layout)
    read = replace(read, traffic=at_rate(read.traffic, rate))
    if server is not None:
        end = bench_launched(read, server, out, client=client)
        record, found, document = end.record, end.measured, end.document
    else:
        url = target.rstrip("/")
        running = RunningServer(url=url, model=model_at(url), description=f"a server at {url}")
        record = Benchmark(job=read, layout=read.layout or ServingLayout(), client=client).against(
            [running], out
        )
        found = measured(record, read.targets)
        document = _beside_prediction(read, record, found)
    write_json_atomically(out / "bench-document.json", document)
    if llmd is not None:
        write_json_atomically(llmd, llmd_report(record, model=read.model.name))
    if as_json:
        print_json(document)
    else:
        stdout.print(bench_view(document))
    if found.missed or found.failed:
        raise typer.Exit(MISSED)


def _beside_prediction(job: ServingJob, record: ServingRecord, found: Measured) -> dict[str, Any]:
    """The record beside a simulation of the job's layout on its cluster, or why there is none."""
    if job.layout is None:
        return bench_document(record, found, None, basis="none: the job names no layout")
    try:
        topology = topology_for(job, job.layout)
        deployment = predicted_deployment(job, job.layout, job.profiles[0], topology)
        predicted = simulate(deployment.pools, job.traffic, deployment.draw, job.targets)
    except MeshfitError as error:
        return bench_document(record, found, None, basis=f"none: {error}")
    name = job.profiles[0].name
    return bench_document(
        record,
        found,
        predicted,
        basis=f"simulated: {name} on {topology.accelerator.name}, {job.layout.label}, by formula",
        links=links_of(job.layout, topology),
    )
