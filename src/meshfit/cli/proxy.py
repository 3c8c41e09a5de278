"""``meshfit fit --proxy``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from meshfit.cli.output import print_json, stderr, stdout
from meshfit.cli.submit import SubmitWords, runner_of
from meshfit.errors import RunError
from meshfit.funnel.sweep.runner import SweepRunner
from meshfit.job.spec import Job

ProxyNodes = Annotated[
    int | None,
    typer.Option(
        "--proxy",
        metavar="NODES",
        min=1,
        help="Where the whole cluster is not to be had: run each layout of the shortlist cut to so many "
        "nodes (here, or with --submit), and compose the whole job's step from that.",
        show_default=False,
    ),
]


def run_proxies(
    path: Path, job: Job, words: SubmitWords, *, nodes: int, out: Path | None
) -> dict[str, Any]:
    """The comparison of the job in ``path`` by proxies on ``nodes`` nodes."""
    from meshfit.funnel.proxy.proxies import ProxyOptions, fit_by_proxy

    def runner(proxy_job: Path) -> SweepRunner:
        return runner_of(words, proxy_job, rank_order=None, given_layouts=True)

    options = ProxyOptions(num_hosts=nodes, here=words.to is None, runner_of=runner)
    return fit_by_proxy(path, job, options, out=out, console=stderr)


def conclude_proxies(document: dict[str, Any], as_json: bool) -> None:
    """Prints the comparison; the command fails where nothing won."""
    if as_json:
        print_json(document)
    else:
        from meshfit.report.measured.proxies import proxies_view

        stdout.print(proxies_view(document))
    if document["winner"] is None:
        raise typer.Exit(RunError.exit_code)
