"""``meshfit compare``."""

from pathlib import Path
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
    refuse_for_a_job,
)
from meshfit.cli.jobs import (
    CalibrationFile,
    LayoutText,
    RankOrderText,
    WithoutCalibration,
    calibration_asked,
)
from meshfit.cli.output import AsJson, print_json, stdout
from meshfit.errors import InputError
from meshfit.job.engine_file import Added, is_engine_file, job_of_engine_file
from meshfit.job.read import read_job
from meshfit.job.spec import Job, RunSpec
from meshfit.record.engine_log import EngineLog

TRAINER_RUNS_ON = ("accelerate", "deepspeed")
"""Engines whose runs transformers' Trainer logs."""


def compare(
    job: Annotated[
        Path | None,
        typer.Argument(
            metavar="[JOB]",
            help="The job that ran: a job.yaml, a folder that holds one, or an engine's own file.",
            show_default=False,
        ),
    ] = None,
    *,
    log: Annotated[
        Path,
        typer.Option(
            "--log",
            metavar="FILE",
            help="What torchtitan, Megatron-LM, DeepSpeed or transformers' Trainer printed, or a "
            "trainer_state.json.",
            show_default=False,
        ),
    ],
    warmup: Annotated[
        int | None,
        typer.Option(
            "--warmup",
            min=0,
            metavar="STEPS",
            help=f"First steps of every start that timing leaves out (default: the job's, else "
            f"{RunSpec().warmup_steps}).",
            show_default=False,
        ),
    ] = None,
    gpus: Gpus = None,
    accelerator: Accelerator = None,
    cluster: Cluster = None,
    model: ModelName = None,
    sequence_length: SequenceLength = None,
    global_batch: GlobalBatch = None,
    micro_batch_size: MicroBatch = None,
    layout: LayoutText = None,
    rank_order: RankOrderText = None,
    calibration: CalibrationFile = None,
    no_calibration: WithoutCalibration = False,
    as_json: AsJson = False,
) -> None:
    """The log of a run in an engine: its step time, throughput, memory and loss, beside the prediction.

    What the log does not say is absent with the reason; a log of another setting than JOB is refused.
    """
    from meshfit.engines.logs.read import read_log
    from meshfit.funnel.check.logged import compared_document, facts_of_job, logged_document
    from meshfit.report.measured.logged import logged_view

    added = Added(
        gpus=gpus,
        accelerator=accelerator,
        cluster=cluster,
        model=model,
        sequence_length=sequence_length,
        global_batch=global_batch,
        micro_batch_size=micro_batch_size,
        layout=layout,
        calibration=calibration_asked(calibration, no_calibration),
    )
    if job is None:
        refuse_for_a_job(None, added)
        default = RunSpec().warmup_steps if warmup is None else warmup
        document = logged_document(read_log(log), warmup_steps=default)
    else:
        read = _job_of(job, added, rank_order, read_log(log))
        if read.layout is None:
            raise InputError("which layout ran? Give `layout:` in the job or --layout tp=4,pp=2")
        found = read_log(log, facts_of_job(read, read.layout))
        steps = read.run.warmup_steps if warmup is None else warmup
        document = compared_document(read, read.layout, found, warmup_steps=steps)
    if as_json:
        print_json(document)
    else:
        stdout.print(logged_view(document))


def _job_of(path: Path, added: Added, rank_order: str | None, log: EngineLog) -> Job:
    """The job at ``path``, of the engine whose log it is.

    Raises:
        InputError: anything wrong in it, or it is the file of another engine than the log.
    """
    engines = TRAINER_RUNS_ON if log.engine == "accelerate" else (log.engine,)
    if is_engine_file(path):
        job = job_of_engine_file(path, added).job
        if job.profile.name not in engines:
            raise InputError(f"{path} is for {job.profile.name}, but the log is that of {log.form}")
        return job
    refuse_for_a_job(path, added)

    def read_for(engine: str | None) -> Job:
        return read_job(
            path,
            layout=added.layout,
            engine=engine,
            rank_order=rank_order,
            calibration=added.calibration,
            to_run=False,
        )

    job = read_for(None)
    return job if job.profile.name in engines else read_for(engines[0])
