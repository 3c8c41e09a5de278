"""``meshfit serve simulate``."""

import math
from dataclasses import replace
from typing import Annotated

import typer

from meshfit.cli.jobs import JobPath
from meshfit.cli.output import AsJson, print_json, stdout
from meshfit.errors import InputError
from meshfit.serve.asked.traffic import TrafficSpec
from meshfit.serve.job.clusters import topology_for
from meshfit.serve.job.read import read_serving_job

MISSED = 1

ServingLayoutText = Annotated[
    str | None,
    typer.Option(
        "--layout",
        metavar="KEY=X,...",
        help="Overrides keys of the job's layout, e.g. replicas=2,tp=4.",
        show_default=False,
    ),
]


def simulate(
    job: JobPath,
    *,
    layout: ServingLayoutText = None,
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Requests a second, in place of the job's.",
            show_default=False,
        ),
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="How many are drawn, in place of the job's.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="In place of the job's.", show_default=False),
    ] = None,
    measured: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="Output tokens a second that you saw of the whole deployment, e.g. '700 tokens/s': "
            "whether it is far below what the layout should do.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play requests one by one through a layout: latencies at p50 to p99, goodput, saturation."""
    from meshfit.report.serving.simulation import simulation_document, simulation_view
    from meshfit.serve.bench.suspicion import measured_document, read_tokens_per_s
    from meshfit.serve.simulate.deployment import predicted_deployment
    from meshfit.serve.simulate.simulation import simulate as play

    read = read_serving_job(job, layout=layout)
    if read.layout is None:
        raise InputError(
            "no layout to simulate: give `layout:` in the job or --layout replicas=2,tp=4"
        )
    seen = None if measured is None else read_tokens_per_s(measured)
    deployment, profile = read.layout, read.profiles[0]
    topology = topology_for(read, deployment)
    run = replace(
        read.run,
        requests=requests or read.run.requests,
        seed=read.run.seed if seed is None else seed,
    )
    read = replace(read, run=run, traffic=at_rate(read.traffic, rate))
    predicted = predicted_deployment(read, deployment, profile, topology)
    found = play(predicted.pools, read.traffic, predicted.draw, read.targets)
    document = simulation_document(found, engine=profile.name, layout=deployment.as_json())
    if seen is not None:
        document["measured"] = measured_document(
            seen, found.output_tokens_per_s, deployment, topology
        )
    if as_json:
        print_json(document)
    else:
        stdout.print(simulation_view(document))
    if found.missed:
        raise typer.Exit(MISSED)


def at_rate(traffic: TrafficSpec, rate: float | None) -> TrafficSpec:
    """The traffic at another rate, where one is given.

    Raises:
        InputError: it has no rate, or another one is no rate.
    """
    if rate is None:
        return traffic
    if not 0 < rate < math.inf:
        raise InputError(f"--rate {rate:g} must be a number greater than 0")
    if traffic.rate_per_s is None:
        raise InputError(
            "--rate changes the rate of an open loop; the job has a trace or concurrency"
        )
    return replace(traffic, rate_per_s=rate)
