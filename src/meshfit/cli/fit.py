"""``meshfit fit`` and ``meshfit run``."""

from pathlib import Path

import typer
from rich.markup import escape

from meshfit.cli.in_engine import EnginePython, InEngine, run_in
from meshfit.cli.jobs import (
    CalibrationFile,
    JobPath,
    LayoutText,
    OutFolder,
    RankOrderText,
    WithoutCalibration,
    calibration_asked,
)
from meshfit.cli.output import AsJson, print_json, stderr, stdout
from meshfit.cli.proxy import ProxyNodes, conclude_proxies, run_proxies
from meshfit.cli.submit import (
    MaxNodes,
    OneJobEach,
    SchedulerOptions,
    SubmitTo,
    SubmitWords,
    runner_of,
)
from meshfit.errors import InputError
from meshfit.funnel.sweep.fit import FitEnd
from meshfit.job.read import read_job

FAILED = 3


def fit(
    job: JobPath,
    *,
    rank_order: RankOrderText = None,
    out: OutFolder = None,
    calibration: CalibrationFile = None,
    no_calibration: WithoutCalibration = False,
    submit: SubmitTo = None,
    one_job_each: OneJobEach = False,
    max_nodes: MaxNodes = None,
    scheduler_options: SchedulerOptions = None,
    proxy: ProxyNodes = None,
    as_json: AsJson = False,
) -> None:
    """The whole funnel: plan, really run a shortlist with loss parity, name one winner. Resumable."""
    from meshfit.funnel.sweep.fit import fit as run_fit

    asked = calibration_asked(calibration, no_calibration, remembers=True)
    read = read_job(job, rank_order=rank_order, calibration=asked)
    words = SubmitWords(
        to=submit, each=one_job_each, max_nodes=max_nodes, options=scheduler_options or []
    )
    if proxy is not None:
        if calibration is not None:
            raise InputError("--proxy predicts by formulas alone: leave --calibration out")
        conclude_proxies(run_proxies(job, read, words, nodes=proxy, out=out), as_json)
        return
    runner = runner_of(words, job, rank_order=rank_order, given_layouts=False)
    conclude(run_fit(read, out=out, console=stderr, runner=runner), as_json)


def run(
    job: JobPath,
    *,
    layout: LayoutText = None,
    rank_order: RankOrderText = None,
    out: OutFolder = None,
    calibration: CalibrationFile = None,
    no_calibration: WithoutCalibration = False,
    submit: SubmitTo = None,
    max_nodes: MaxNodes = None,
    scheduler_options: SchedulerOptions = None,
    in_engine: InEngine = None,
    engine_python: EnginePython = None,
    as_json: AsJson = False,
) -> None:
    """Really run one layout (the job's, or --layout), with loss parity; or (--in-engine) in an engine
    that is installed here, measured by its log."""
    from meshfit.funnel.sweep.fit import run_one

    asked = calibration_asked(calibration, no_calibration, remembers=in_engine is None)
    if in_engine is not None:
        if submit is not None:
            raise InputError("--in-engine starts an engine here; it does not go with --submit")
        run_in(
            in_engine,
            job,
            python=engine_python,
            layout=layout,
            rank_order=rank_order,
            calibration=asked,
            out=out,
            as_json=as_json,
        )
        return
    if engine_python is not None:
        raise InputError("--engine-python goes with --in-engine ENGINE")
    read = read_job(job, layout=layout, rank_order=rank_order, calibration=asked)
    words = SubmitWords(to=submit, max_nodes=max_nodes, options=scheduler_options or [])
    runner = runner_of(words, job, rank_order=rank_order, given_layouts=True)
    conclude(run_one(read, out=out, console=stderr, runner=runner), as_json)


def conclude(end: FitEnd, as_json: bool) -> None:
    """Print how a sweep ended; the command fails where nothing won."""
    if as_json:
        print_json(end.document)
    else:
        from meshfit.report.measured.fit import fit_view

        stdout.print(fit_view(end.document))
        stdout.print(f"\nreport   {_shown(end.folder.page)}", highlight=False)
        launcher = end.folder.export / "launch.sh"
        if end.choice.winner is not None and launcher.exists():
            stdout.print(f"launch   {_shown(launcher)}", highlight=False)
        if (remembered := end.document.get("remembered")) and remembered["layouts"]:
            file = escape(remembered["file"])
            stdout.print(f"remembered for later plans in {file}", highlight=False)
    if end.choice.winner is None:
        raise typer.Exit(FAILED)


def _shown(path: Path) -> str:
    return escape(str(path))
