"""``meshfit serve plan``."""

from typing import Annotated

import typer

from meshfit.cli.jobs import JobPath
from meshfit.cli.output import AsJson, print_json, stdout
from meshfit.serve.job.read import read_serving_job

NOTHING_FITS = 1


def plan(
    job: JobPath,
    *,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="How many layouts to show.")] = 20,
    every: Annotated[bool, typer.Option("--all", help="Show every layout that fits.")] = False,
    simulate: Annotated[
        int,
        typer.Option(
            "--simulate",
            metavar="N",
            min=0,
            help="Play the job's requests through the first N layouts of the front: p95 and p99.",
            show_default=False,
        ),
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Every layout replicas x tp x pp x ep x attention-dp: memory, latencies, throughput, price.

    Exits with 1 where nothing fits or, with `cluster: auto`, nothing meets the targets.
    """
    from meshfit.report.serving.plan import serving_plan_document, serving_plan_view
    from meshfit.report.serving.simulated_front import simulated_front_view, simulated_rows
    from meshfit.serve.plan.planning import make_serving_plan
    from meshfit.serve.plan.simulated_front import simulated_front

    made = make_serving_plan(read_serving_job(job))
    simulated = simulated_front(made, simulate)
    if as_json:
        document = serving_plan_document(made, top=None if every else top)
        print_json(document | ({"simulated": simulated_rows(simulated)} if simulated else {}))
    else:
        stdout.print(serving_plan_view(made, top=top, every=every))
        if simulated:
            stdout.print(simulated_front_view(simulated))
    if not made.fitting or (made.tried and not made.meets_targets):
        raise typer.Exit(NOTHING_FITS)
