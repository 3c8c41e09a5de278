"""``meshfit check``."""

from typing import Annotated

import typer

from meshfit.cli.engine_file import (
    Accelerator,
    Cluster,
    GlobalBatch,
    Gpus,
    MicroBatch,
    ModelName,
    SequenceLength,
    check_engine_file,
    check_server_file,
    refuse_for_a_job,
)
from meshfit.cli.jobs import (
    AssumeText,
    CalibrationFile,
    JobPath,
    LayoutText,
    RankOrderText,
    WithoutCalibration,
    calibration_asked,
)
from meshfit.cli.output import AsJson, print_json, stdout
from meshfit.errors import InputError
from meshfit.funnel.check.checking import EXIT_CODES, check_document, engine_documents
from meshfit.funnel.check.measured import measured_document, tokens_per_s
from meshfit.job.engine_file import Added, is_engine_file
from meshfit.job.read import read_job
from meshfit.job.spec import Job
from meshfit.report.predicted.check import check_view
from meshfit.serve.job.engine_file import is_server_file


def check(
    job: JobPath,
    *,
    gpus: Gpus = None,
    accelerator: Accelerator = None,
    cluster: Cluster = None,
    model: ModelName = None,
    sequence_length: SequenceLength = None,
    global_batch: GlobalBatch = None,
    micro_batch_size: MicroBatch = None,
    layout: LayoutText = None,
    groups: Annotated[
        bool, typer.Option("--groups", help="Show the ranks and hosts of every axis's groups.")
    ] = False,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            "--engine",
            metavar="NAME",
            help="Ask this engine too (repeat, or `all`).",
            show_default=False,
        ),
    ] = None,
    rank_order: RankOrderText = None,
    measured: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="A throughput that you saw, e.g. '840 tokens/s/GPU': its MFU, and whether it is far "
            "below what the layout should do.",
            show_default=False,
        ),
    ] = None,
    assume: AssumeText = None,
    calibration: CalibrationFile = None,
    no_calibration: WithoutCalibration = False,
    as_json: AsJson = False,
) -> None:
    """One given layout: is it legal, does it fit, with what margin? All broken rules at once.

    JOB may be an engine's own file: a script with Megatron-LM's arguments, torchtitan's function or
    TOML, DeepSpeed's JSON, Accelerate's YAML; or a command line or YAML of vLLM or SGLang. It is read,
    never run.
    """
    asked = calibration_asked(calibration, no_calibration)
    added = Added(
        gpus=gpus,
        accelerator=accelerator,
        cluster=cluster,
        model=model,
        sequence_length=sequence_length,
        global_batch=global_batch,
        micro_batch_size=micro_batch_size,
        layout=layout,
        calibration=asked,
        assume=assume,
    )
    if is_engine_file(job):
        check_engine_file(job, added, as_json=as_json)
    if is_server_file(job):
        check_server_file(job, added, as_json=as_json)
    refuse_for_a_job(job, added)

    def read_for(engine: str | None) -> Job:
        return read_job(
            job,
            layout=layout,
            engine=engine,
            rank_order=rank_order,
            calibration=asked,
            assume=assume,
            to_run=False,
        )

    read = read_for(None)
    if read.layout is None:
        raise InputError("no layout to check: give `layout:` in the job or --layout tp=4,pp=2")
    seen = None if measured is None else tokens_per_s(measured, read)
    document = check_document(read, read.layout)
    if seen is not None and document["time"] is not None:
        step_time = document["interval"]["step_time"]
        document["measured"] = measured_document(read, read.layout, seen, step_time)
    others = [*read.other_engines, *(engine or [])]
    if others:
        document["engines"] = engine_documents(read_for, [read.profile.name, *others])
    if as_json:
        print_json(document)
    else:
        stdout.print(check_view(document, groups=groups))
    raise typer.Exit(EXIT_CODES[document["verdict"]])
