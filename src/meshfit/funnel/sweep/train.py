"""``meshfit train``: one layout for a number of steps, with checkpoints, restarted where it fails."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console

from meshfit.cluster.document import topology_document
from meshfit.errors import InputError, RunError
from meshfit.funnel.check.checking import require_legal
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.funnel.sweep.runner import require_runnable
from meshfit.funnel.sweep.sweep_plan import plan_hash
from meshfit.funnel.sweep.tasks import WEIGHTS_SEED, planned_hosts
from meshfit.funnel.sweep.train_progress import TrainProgress
from meshfit.job.spec import Job
from meshfit.lab.hosts import launch_hosts
from meshfit.lab.machine import lab_in_use
from meshfit.launch.orphans import end_orphans
from meshfit.launch.supervise import LaunchOutcome, OnProgress, launch
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.checkpoint import checkpoints, read_manifest
from meshfit.record.files import write_json_atomically
from meshfit.record.heartbeat import read_heartbeats
from meshfit.record.lock import folder_lock
from meshfit.record.schema import CheckpointRequest, RunRequest

DOCUMENT_SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """How a training run keeps and uses checkpoints.

    Attributes:
        every: steps between two.
        asynchronous: training goes on while one is written.
        resume: start from the last good one of the folder.
        restarts: how often a launch that failed is started again from the last good one.
    """

    every: int
    asynchronous: bool = False
    resume: bool = False
    restarts: int = 0


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One launch: the steps behind the checkpoint it started from, and how far it came."""

    first_step: int
    reached_step: int
    ended: LaunchOutcome


@dataclass(frozen=True, kw_only=True)
class TrainEnd:
    """What came of it: ``train --json``, and where it lies."""

    document: dict[str, Any]
    folder: Path


def train(job: Job, options: TrainOptions, *, out: Path | None, console: Console) -> TrainEnd:
    """Trains ``job.layout`` for ``job.run.steps`` steps in all.

    Raises:
        InputError: no layout, an illegal one, or data that cannot be read.
        RunError: initial weights could not be made.
    """
    layout = job.layout
    if layout is None:
        raise InputError("no layout to train: give `layout:` in the job or --layout tp=4,pp=2")
    require_legal(job, layout)
    require_runnable(job)
    key = plan_hash(job)  # reads the data: what is wrong with them is said before anything starts
    root = out or RunFolder.of_plan(f"{job.name} train", key).root
    with lab_in_use(job.topology.lab), folder_lock(root):
        end_orphans(root)
        attempts = _attempts(job, layout, options, RunFolder(root), console)
    document = train_document(layout, attempts)
    write_json_atomically(root / "train.json", document)
    return TrainEnd(document=document, folder=root)


def _attempts(
    job: Job, layout: LayoutSpec, options: TrainOptions, folder: RunFolder, console: Console
) -> list[Attempt]:
    weights = job.weights or _weights(job, folder)
    saved = folder.root / "checkpoints"
    attempts: list[Attempt] = []
    progress = TrainProgress(console, job.run.steps)
    resume = options.resume
    while True:
        first_step = read_manifest(last[-1]).step if resume and (last := checkpoints(saved)) else 0
        request = _request(
            job,
            layout,
            weights,
            checkpoint=CheckpointRequest(
                folder=str(saved),
                every=options.every,
                asynchronous=options.asynchronous,
                resume=resume,
            ),
        )
        started_at = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        where = folder.root / "launches" / f"{started_at}-{len(attempts)}"
        with progress.launching(first_step):
            ended = _launch(job, request, where, progress.update)
        beats = read_heartbeats(where).values()
        reached = max((beat.step for beat in beats if beat.phase in ("train", "save")), default=0)
        attempt = Attempt(first_step=first_step, reached_step=reached, ended=ended)
        attempts.append(attempt)
        if ended.outcome in ("ok", "invalid") or len(attempts) > options.restarts:
            return attempts
        resume = bool(checkpoints(saved))
        message = ended.failure.message if ended.failure else ended.outcome
        console.print(
            f"failed at step {reached}: {message}; starting again", markup=False, soft_wrap=True
        )


def _launch(
    job: Job, request: RunRequest, folder: Path, on_progress: OnProgress | None = None
) -> LaunchOutcome:
    return launch(
        request,
        folder,
        deadline_s=job.run.deadline_s,
        hang_s=job.run.hang_s,
        port=job.run.port,
        hosts=launch_hosts(job.topology),
        on_progress=on_progress,
    )


def _weights(job: Job, folder: RunFolder) -> Path:
    """Initial weights, drawn once."""
    where = folder.weights("full")
    if not any((where / "weights").glob("*.safetensors")):
        ended = _launch(job, _request(job, LayoutSpec(), where / "weights", "weights"), where)
        if ended.outcome != "ok":
            why = ended.failure.message if ended.failure else ended.outcome
            raise RunError(f"initial weights could not be made: {why}")
    return where / "weights"


def _request(
    job: Job,
    layout: LayoutSpec,
    weights: Path,
    purpose: Any = "train",
    checkpoint: CheckpointRequest | None = None,
) -> RunRequest:
    return RunRequest(
        plan_hash="",
        candidate=layout.label,
        purpose=purpose,
        model_config=dict(job.model.config),
        weights=str(weights),
        layout=layout,
        training=job.training,
        device_type=job.topology.accelerator.device_type,
        steps=job.run.steps,
        warmup_steps=0,
        seed=WEIGHTS_SEED,
        threads_per_rank=job.run.threads_per_rank,
        topology=topology_document(job.topology),
        hosts=planned_hosts(job.topology, layout.world_size),
        rank_order=job.profile.rank_order,
        checkpoint=checkpoint,
    )


def train_document(layout: LayoutSpec, attempts: Sequence[Attempt]) -> dict[str, Any]:
    """What ``train --json`` prints.

    ``restarts`` has for each failure what it cost: ``lost_steps`` since the checkpoint that the next
    launch began from, ``lost`` seconds that repeating them took (steps times the median step), and
    ``restart`` seconds from the failure's end to the end of the next launch's first step.
    """
    last = attempts[-1]
    result = last.ended.result
    return {
        "schema_version": DOCUMENT_SCHEMA_VERSION,
        "outcome": last.ended.outcome,
        "layout": layout.as_json(),
        "failure": asdict(last.ended.failure) if last.ended.failure else None,
        "first_step": last.first_step,
        "losses": list(result.losses) if result else [],
        "load": result.load_s if result else None,
        "checkpoints": [asdict(report) for report in result.checkpoints] if result else [],
        "restarts": [_restart(failed, following) for failed, following in pairwise(attempts)],
        "attempts": [
            {
                "outcome": attempt.ended.outcome,
                "first_step": attempt.first_step,
                "reached_step": attempt.reached_step,
                "seconds": attempt.ended.seconds,
                "failure": asdict(attempt.ended.failure) if attempt.ended.failure else None,
            }
            for attempt in attempts
        ],
    }


def _restart(failed: Attempt, following: Attempt) -> dict[str, Any]:
    failure, result = failed.ended.failure, following.ended.result
    lost = failed.reached_step - following.first_step
    steps_s = (
        [max(times) for times in zip(*(r.step_s for r in result.ranks), strict=True)]
        if result
        else []
    )
    return {
        "rank": failure.rank if failure else None,
        "phase": failure.phase if failure else None,
        "message": failure.message if failure else "",
        "at_step": failed.reached_step,
        "resumed_step": following.first_step,
        "lost_steps": lost,
        "lost": lost * statistics.median(steps_s) if steps_s else None,
        "restart": result.phases_s.get("first_step") if result else None,
    }
