"""What ``fit --json`` prints: layouts that were run, and the one that was chosen."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NotRequired, TypedDict

from meshfit.compare.candidate import measured_candidate
from meshfit.compare.causes import Cause
from meshfit.compare.stragglers import RankScore, rank_scores
from meshfit.compare.timing import percentile
from meshfit.compare.utilisation import Utilisation
from meshfit.record.profiles import mean_profile
from meshfit.record.schema import RankReport, Record, RunResult, StepProfile
from meshfit.report.documents.plan import PlanDocument
from meshfit.report.documents.routing import RoutingDocument, routing_of

_EXPOSED = "exposed."


class SpreadDocument(TypedDict):
    """A median with the 10th and 90th percentile around it, and over how many values."""

    median: float
    low: float
    high: float
    count: int


class ProfileDocument(TypedDict):
    """Where profiled steps went, in seconds; these are longer than timed ones.

    ``time`` has the keys of ``TimeBreakdown.as_json``, ``step`` being the profiled one; ``waiting``
    is what a rank stood still until others joined, along all axes; ``communication`` is all of it,
    hidden or not. Of ``other``, the rank's thread ran for ``host`` and was ready without a core for
    ``core_wait``, None where that was not counted; nothing explains ``unattributed``.
    """

    time: dict[str, float | None]
    waiting: float
    communication: float
    host: NotRequired[float | None]
    core_wait: NotRequired[float | None]
    unattributed: NotRequired[float]


class RankDocument(TypedDict):
    """One rank of one candidate; ``step_time`` is None when no step was timed."""

    rank: int
    host: str
    stage: int
    step_time: SpreadDocument | None
    input_wait: SpreadDocument | None
    memory: dict[str, int | None] | None
    resident: int | None
    profile: NotRequired[ProfileDocument | None]
    score: NotRequired[dict[str, Any]]
    """Keys of ``compare.stragglers.RankScore``, of the last repeat."""


class CandidateDocument(TypedDict):
    """One layout that was run (or tried).

    Attributes:
        parity: keys of ``record.schema.Parity``; None when nothing was compared.
        tokens_per_s, step_time: medians over the timed steps of all repeats; a step lasts as long
            as its slowest rank.
        memory: keys of ``MemoryBreakdown.as_json`` of the rank with the highest total.
        exposed: seconds of a profiled step by ``COLLECTIVE.AXIS``, the mean over ranks; ``profile``
            has the other terms, the mean over ranks and repeats as well.
        routing: what routers of experts did; None in a dense model.
        utilisation: keys of ``compare.utilisation.Utilisation``.
        first_step: seconds from a process's start to the end of its first step, median of repeats.
        stragglers: ranks that are much slower than others, or than they were.
        predicted: keys of ``Prediction.as_json``, written before the run.
        reason: why it won, tied or lost, in words.
        cause: the term behind that, keys of ``compare.causes.Cause``; None where none is known.
        gradients: first-step gradient errors, the worst first.
        absent: key -> why there is no value.
    """

    label: str
    family: str
    layout: dict[str, Any]
    baseline: bool
    outcome: str
    parity: dict[str, Any] | None
    tokens_per_s: float | None
    tokens_per_s_spread: SpreadDocument | None
    step_time: float | None
    step_time_spread: SpreadDocument | None
    memory: dict[str, int | None] | None
    exposed: dict[str, float] | None
    profile: NotRequired[ProfileDocument | None]
    routing: NotRequired[RoutingDocument | None]
    utilisation: NotRequired[dict[str, Any] | None]
    first_step: NotRequired[float | None]
    stragglers: NotRequired[list[int]]
    predicted: dict[str, Any] | None
    reason: str
    cause: NotRequired[dict[str, Any] | None]
    failure: dict[str, Any] | None
    repeats: int
    losses: list[float]
    gradient_norms: list[float]
    gradients: list[dict[str, Any]]
    ranks: list[RankDocument]
    absent: dict[str, str]
    folder: str


class WinnerDocument(TypedDict):
    """The chosen layout and what it was measured on."""

    label: str
    layout: dict[str, Any]
    engine: str
    accelerator: str
    world_size: int


class ReferenceDocument(TypedDict):
    """What losses were compared with. ``kind`` as in ``record.schema.ParityKind``."""

    kind: str
    losses: list[float]
    gradient_norms: list[float]


class FitDocument(TypedDict):
    """What ``fit --json`` prints and ``render_page`` shows.

    Attributes:
        notes: sentences a reader must see before the winner, such as what CPU ranks do not say.
        job: ``name``, and the workload by the keys of a job file.
        model: the keys of ``model --json``, and ``name``.
        topology: the keys of ``topo --json``, and ``capacity`` (bytes of one rank).
        plan: what tiers 0 to 2 found.
        headroom: share of the capacity that has to stay free.
        warmup_steps, judged_steps: first steps left out of timing; first steps parity looks at.
        created_at: UTC, ISO 8601.
        remembered: the calibration ``file`` for later plans, and how many ``layouts`` are new in it.
    """

    schema_version: int
    outcome: str
    winner: WinnerDocument | None
    reason: str
    candidates: list[CandidateDocument]
    notes: list[str]
    job: dict[str, Any]
    model: dict[str, Any]
    topology: dict[str, Any]
    environment: dict[str, Any]
    plan: NotRequired[PlanDocument]
    reference: NotRequired[ReferenceDocument]
    headroom: NotRequired[float]
    warmup_steps: NotRequired[int]
    judged_steps: NotRequired[int]
    created_at: NotRequired[str]
    remembered: NotRequired[dict[str, Any]]


def candidate(
    records: Sequence[Record],
    *,
    warmup_steps: int,
    reason: str = "",
    cause: Cause | None = None,
    baseline: bool = False,
    utilisation: Utilisation | None = None,
    absent: Mapping[str, str] | None = None,
    worst_gradients: int = 12,
) -> CandidateDocument:
    """All launches of one candidate as one row, as ``compare.candidate`` reduces them.

    ``records`` must not be empty.
    """
    measured = measured_candidate(records, warmup_steps=warmup_steps)
    results = [record.result for record in records if record.result is not None]
    timed = [r.result for r in records if r.result is not None and r.purpose == "measure"]
    shown = next(iter(timed or results), None)
    profile = _profile_document(measured.profile)
    scores = rank_scores(timed[-1].ranks, warmup_steps=warmup_steps) if timed else []
    rates = [measured.useful_tokens_per_step / seconds for seconds in measured.step_s]
    gradients = sorted(
        next((result.gradients for result in results if result.gradients), ()),
        key=lambda gradient: -gradient.error,
    )
    return {
        "label": measured.layout.label,
        "family": measured.layout.family,
        "layout": measured.layout.as_json(),
        "baseline": baseline,
        "outcome": measured.outcome,
        "parity": asdict(measured.parity) if measured.parity else None,
        "tokens_per_s": measured.tokens_per_s,
        "tokens_per_s_spread": spread(rates),
        "step_time": measured.step_time_s,
        "step_time_spread": spread(measured.step_s),
        "memory": measured.memory.as_json() if measured.memory else None,
        "exposed": _exposed(profile),
        "profile": profile,
        "routing": routing_of(timed, warmup_steps, measured.layout.ep),
        "utilisation": asdict(utilisation) if utilisation else None,
        "first_step": _median(
            [r.phases_s["first_step"] for r in timed if "first_step" in r.phases_s]
        ),
        "stragglers": [score.rank for score in scores if score.is_straggler],
        "predicted": measured.predicted.as_json() if measured.predicted else None,
        "reason": reason,
        "cause": asdict(cause) if cause else None,
        "failure": asdict(measured.failure) if measured.failure else None,
        "repeats": len(timed),
        "losses": list(shown.losses) if shown else [],
        "gradient_norms": list(shown.gradient_norms) if shown else [],
        "gradients": [asdict(gradient) for gradient in gradients[:worst_gradients]],
        "ranks": ranks(timed, warmup_steps, scores),
        "absent": dict(absent or {}),
        "folder": records[0].folder,
    }


def ranks(
    results: Sequence[RunResult], warmup_steps: int, scores: Sequence[RankScore] = ()
) -> list[RankDocument]:
    """Every rank over all repeats, in rank order."""
    reports: dict[int, list[RankReport]] = {}
    for result in results:
        for report in result.ranks:
            reports.setdefault(report.rank, []).append(report)
    score_of = {score.rank: score for score in scores}
    return [_rank(reports[rank], warmup_steps, score_of.get(rank)) for rank in sorted(reports)]


def _rank(
    repeats: Sequence[RankReport], warmup_steps: int, score: RankScore | None
) -> RankDocument:
    last = repeats[-1]
    resident = [report.resident_bytes for report in repeats if report.resident_bytes is not None]
    profiles = [report.profile for report in repeats if report.profile is not None]
    memories = [report.memory for report in repeats if report.memory is not None]
    fullest = max(memories, key=lambda memory: memory.total, default=None)
    document: RankDocument = {
        "rank": last.rank,
        "host": last.host,
        "stage": last.stage,
        "step_time": spread([s for report in repeats for s in report.step_s[warmup_steps:]]),
        "input_wait": spread([s for report in repeats for s in report.input_wait_s[warmup_steps:]]),
        "memory": fullest.as_json() if fullest else None,
        "resident": max(resident, default=None),
        "profile": _profile_document(mean_profile(profiles) if profiles else None),
    }
    if score is not None:
        document["score"] = asdict(score)
    return document


def _profile_document(profile: StepProfile | None) -> ProfileDocument | None:
    """Where profiled steps went; None where none was."""
    if profile is None:
        return None
    return {
        "time": profile.time.as_json(),
        "waiting": profile.waiting_s,
        "communication": profile.communication_s,
        "host": profile.host_s,
        "core_wait": profile.core_wait_s,
        "unattributed": profile.unattributed_s,
    }


def _exposed(profile: ProfileDocument | None) -> dict[str, float] | None:
    if profile is None:
        return None
    return {
        name.removeprefix(_EXPOSED): seconds
        for name, seconds in profile["time"].items()
        if name.startswith(_EXPOSED) and seconds is not None
    }


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def spread(values: Sequence[float]) -> SpreadDocument | None:
    """Median with 10th and 90th percentile; None without values."""
    if not values:
        return None
    return {
        "median": statistics.median(values),
        "low": percentile(values, 0.1),
        "high": percentile(values, 0.9),
        "count": len(values),
    }
