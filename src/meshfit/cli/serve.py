"""``meshfit serve``: the serving half."""

import typer

from meshfit.cli import serve_bench, serve_fit, serve_plan, serve_simulate

app = typer.Typer(
    help="Serving: plan layouts, simulate traffic, measure real servers.", no_args_is_help=True
)
app.command()(serve_plan.plan)
app.command()(serve_simulate.simulate)
app.command()(serve_bench.bench)
app.command()(serve_fit.fit)
