"""What ``fit --json`` prints: everything a reader of the comparison needs, in one document."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

from meshfit.cluster.document import topology_document
from meshfit.compare.candidate import MeasuredCandidate
from meshfit.compare.choose import Choice
from meshfit.compare.parity import JUDGED_STEPS
from meshfit.compare.utilisation import Utilisation, peak_of, utilisation
from meshfit.errors import InputError
from meshfit.funnel.sweep.sweep import SweepEnd, device_seconds
from meshfit.job.spec import Job
from meshfit.record.schema import Record, SweepPlan
from meshfit.report.documents import SCHEMA_VERSION
from meshfit.report.documents.fit import (
    CandidateDocument,
    FitDocument,
    ReferenceDocument,
    WinnerDocument,
    candidate,
)
from meshfit.report.documents.plan import PlanDocument
from meshfit.workload.inventory import inventory

CPU_NOTICE = (
    "CPU ranks: parity and memory are real, but the speed order of these ranks says nothing about "
    "GPUs."
)
OVERSUBSCRIBED_NOTICE = "Several ranks share a core, so step times are longer than on cores apart."

NO_PEAK_ON_CPU = "a CPU rank has no stated peak to hold a step against"
NO_PEAK = "no dense peak of {accelerator} in {precision} is known; the achieved rate is in tokens/s"
NOT_TIMED = "no step of this layout was timed"
NOT_PROFILED = "no launch of this layout got as far as its profiled steps"


def fit_document(
    job: Job,
    plan: SweepPlan,
    end: SweepEnd,
    candidates: Sequence[MeasuredCandidate],
    choice: Choice,
) -> FitDocument:
    """Everything a reader of the comparison needs, in one document."""
    on_cpu = job.topology.accelerator.device_type == "cpu"
    document = FitDocument(
        schema_version=SCHEMA_VERSION,
        outcome="ok" if choice.winner else "no_winner",
        winner=_winner(job, choice),
        reason=choice.reason,
        candidates=[_candidate(job, plan, c, choice) for c in candidates],
        notes=_notes(job, plan, end, on_cpu),
        job=_job(job, end),
        model=inventory(job.model, job.training.sequence_length),
        topology=_topology(job, plan),
        environment=_environment(end.records),
        reference=_reference(plan, end.records),
        headroom=job.headroom_fraction,
        warmup_steps=job.run.warmup_steps,
        judged_steps=JUDGED_STEPS,
        created_at=plan.created_at,
    )
    if plan.document:
        document["plan"] = cast("PlanDocument", plan.document)
    return document


def _winner(job: Job, choice: Choice) -> WinnerDocument | None:
    if choice.winner is None:
        return None
    layout = choice.winner.layout
    return WinnerDocument(
        label=layout.label,
        layout=layout.as_json(),
        engine=job.profile.name,
        accelerator=job.topology.accelerator.name,
        world_size=layout.world_size,
    )


def _candidate(
    job: Job, plan: SweepPlan, measured: MeasuredCandidate, choice: Choice
) -> CandidateDocument:
    used, absent = _utilisation(job, measured)
    document = candidate(
        measured.records,
        warmup_steps=job.run.warmup_steps,
        reason=choice.reasons[measured.layout.label],
        cause=choice.causes.get(measured.layout.label),
        baseline=measured.layout.label == plan.baseline,
        utilisation=used,
        absent={"mfu": absent} if absent else {},
    )
    if document["exposed"] is None:
        document["absent"]["exposed"] = NOT_PROFILED
    return document


def _utilisation(job: Job, measured: MeasuredCandidate) -> tuple[Utilisation | None, str]:
    """How much of the peak a layout uses, or why that is not told."""
    accelerator = job.topology.accelerator
    if accelerator.device_type == "cpu":
        return None, NO_PEAK_ON_CPU
    peak = peak_of(accelerator, job.training)
    if peak is None:
        precision = job.training.precision.matmul
        return None, NO_PEAK.format(accelerator=accelerator.name, precision=precision)
    if measured.tokens_per_s is None:
        return None, NOT_TIMED
    try:
        per_device = measured.tokens_per_s / measured.layout.world_size
        used = utilisation(
            job.model,
            job.training,
            tokens_per_s_per_device=per_device,
            peak_flops_per_s=peak,
            layout=measured.layout,
        )
    except InputError as error:  # of the figures, not of the run: its row stays, without this one
        return None, f"error: {error}"
    return used, ""


def _notes(job: Job, plan: SweepPlan, end: SweepEnd, on_cpu: bool) -> list[str]:
    notes = [CPU_NOTICE] if on_cpu else []
    if job.topology.oversubscribed:
        notes.append(OVERSUBSCRIBED_NOTICE)
    if plan.parity_kind == "reduced":
        cut = "; ".join(plan.parity_steps) or "the whole model"
        notes.append(
            f"Gradients were compared with one process on a cut model ({cut}); on the whole model "
            f"losses and gradient norms were compared with one plain layout."
        )
    if job.model.dropout > 0:
        notes.append(
            f"The model's dropout of {job.model.dropout:g} was set to 0: parity needs it, and "
            f"memory and speed are those without dropout."
        )
    if end.not_run:
        notes.append(f"Left undone at {end.stopped_by}: {', '.join(end.not_run)}.")
    return notes + list(job.notes)


def _job(job: Job, end: SweepEnd) -> dict[str, Any]:
    training = asdict(job.training)
    training["precision"] = job.training.precision.name
    return {
        "name": job.name,
        "model": job.model.name,
        "workload": training,
        "engine": job.profile.name,
        "run": asdict(job.run),
        "spent_device_seconds": device_seconds(end.records),
    }


def _topology(job: Job, plan: SweepPlan) -> dict[str, Any]:
    """What ``topo --json`` prints, and the memory of one rank that layouts were held against."""
    return {**topology_document(job.topology), "capacity": plan.capacity_bytes}


def _environment(records: Sequence[Record]) -> dict[str, Any]:
    """Of the last launch that ended well."""
    results = [row.result for row in records if row.result is not None]
    return dict(results[-1].environment) if results else {}


def _reference(plan: SweepPlan, records: Sequence[Record]) -> ReferenceDocument:
    result = next(
        (row.result for row in records if row.purpose == "reference" and row.result), None
    )
    return ReferenceDocument(
        kind=plan.parity_kind,
        losses=list(result.losses) if result else [],
        gradient_norms=list(result.gradient_norms) if result else [],
    )
