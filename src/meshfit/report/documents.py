"""The documents that tables and the page show: what ``plan --json`` and ``fit --json`` print.

They are plain dictionaries, so that a saved document renders as well as a fresh one. Sizes are in
bytes, times in seconds, fractions 0 to 1. What could not be had is None or left out, and
``absent`` says why. Keys only ever get added.

The builders below reduce records to what a reader compares. They hold the only arithmetic of this
package: how steps of several ranks and repeats become one median and one spread.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NotRequired, TypedDict

from meshfit.breakdown import MemoryBreakdown, Prediction
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.schema import RankReport, Record, RunResult

SCHEMA_VERSION = 1


class SpreadDocument(TypedDict):
    """A median with the 10th and 90th percentile around it, and over how many values."""

    median: float
    low: float
    high: float
    count: int


class PlanCandidateDocument(TypedDict):
    """One layout as predicted. ``memory`` is that of the stage with the highest total."""

    label: str
    family: str
    layout: dict[str, Any]
    verdict: str
    memory: dict[str, int | None]
    """Keys of ``MemoryBreakdown.as_json`` and ``capacity``."""
    time: dict[str, float | None]
    interval: dict[str, dict[str, Any]]
    tokens_per_s: float
    binding: str
    baseline: NotRequired[bool]


class SpaceDocument(TypedDict):
    """How many layouts are legal, and how many each rule rejected."""

    legal: int
    rejected: dict[str, int]


class PlanDocument(TypedDict):
    """What ``plan --json`` prints."""

    schema_version: int
    space: SpaceDocument
    seconds: float
    seconds_by_tier: dict[str, float]
    candidates: list[PlanCandidateDocument]
    job: NotRequired[dict[str, Any]]
    headroom: NotRequired[float]
    notes: NotRequired[list[str]]


class RankDocument(TypedDict):
    """One rank of one candidate; ``step_time`` is None when no step was timed."""

    rank: int
    host: str
    stage: int
    step_time: SpreadDocument | None
    input_wait: SpreadDocument | None
    memory: dict[str, int | None]
    resident: int | None


class CandidateDocument(TypedDict):
    """One layout that was run (or tried).

    Attributes:
        parity: keys of ``record.schema.Parity``; None when nothing was compared.
        tokens_per_s, step_time: medians over the timed steps of all repeats; a step lasts as long
            as its slowest rank.
        memory: keys of ``MemoryBreakdown.as_json`` of the rank with the highest total.
        exposed: seconds a step by ``COLLECTIVE.AXIS``.
        predicted: keys of ``Prediction.as_json``, written before the run.
        reason: why it won, tied or lost, in words.
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
    predicted: dict[str, Any] | None
    reason: str
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


class ViolationDocument(TypedDict):
    """One broken rule, as ``check --json`` lists it."""

    rule: str
    message: str
    values: dict[str, Any]
    nearest: NotRequired[Any]
    option: NotRequired[str | None]


def plan_candidate(
    *,
    layout: LayoutSpec,
    prediction: Prediction,
    verdict: str,
    capacity_bytes: int | None,
    baseline: bool = False,
) -> PlanCandidateDocument:
    """One predicted layout; ``capacity_bytes`` is what one device reports."""
    return {
        "label": layout.label,
        "family": layout.family,
        "layout": layout.as_json(),
        "verdict": verdict,
        "memory": {"capacity": capacity_bytes, **prediction.memory.as_json()},
        "time": prediction.time.as_json(),
        "interval": {
            "memory": dict(prediction.memory_total.as_json()),
            "step_time": dict(prediction.step_time.as_json()),
        },
        "tokens_per_s": prediction.tokens_per_s,
        "binding": prediction.binding,
        "baseline": baseline,
    }


def candidate(
    records: Sequence[Record],
    *,
    warmup_steps: int,
    reason: str = "",
    baseline: bool = False,
    absent: Mapping[str, str] | None = None,
    worst_gradients: int = 12,
) -> CandidateDocument:
    """All launches of one candidate as one row.

    A repeat that failed decides the outcome; figures come from the repeats that ended well, so a
    candidate that failed halfway still shows what it did. ``records`` must not be empty.
    """
    failed = next((record for record in records if record.outcome != "ok"), None)
    shown = failed or records[0]
    results = [record.result for record in records if record.result is not None]
    steps = [seconds for result in results for seconds in step_times(result, warmup_steps)]
    rates = [
        result.useful_tokens_per_step / seconds
        for result in results
        for seconds in step_times(result, warmup_steps)
    ]
    parity = next((r.parity for r in (shown, *records) if r.parity is not None), None)
    first = results[0] if results else None
    gradients = sorted(first.gradients, key=lambda g: -g.error) if first else []
    return {
        "label": shown.layout.label,
        "family": shown.layout.family,
        "layout": shown.layout.as_json(),
        "baseline": baseline,
        "outcome": shown.outcome,
        "parity": asdict(parity) if parity else None,
        "tokens_per_s": statistics.median(rates) if rates else None,
        "tokens_per_s_spread": spread(rates),
        "step_time": statistics.median(steps) if steps else None,
        "step_time_spread": spread(steps),
        "memory": _peak(results),
        "exposed": None,
        "predicted": shown.prediction.as_json() if shown.prediction else None,
        "reason": reason,
        "failure": asdict(failed.failure) if failed and failed.failure else None,
        "repeats": len(records),
        "losses": list(first.losses) if first else [],
        "gradient_norms": list(first.gradient_norms) if first else [],
        "gradients": [asdict(gradient) for gradient in gradients[:worst_gradients]],
        "ranks": ranks(results, warmup_steps),
        "absent": dict(absent or {}),
        "folder": shown.folder,
    }


def step_times(result: RunResult, warmup_steps: int) -> list[float]:
    """Seconds of every timed step of one run: the slowest rank's, for ranks wait for each other."""
    by_step = zip(*(report.step_s for report in result.ranks), strict=False)
    return [max(step) for step in by_step][warmup_steps:]


def ranks(results: Sequence[RunResult], warmup_steps: int) -> list[RankDocument]:
    """Every rank over all repeats, in rank order."""
    reports: dict[int, list[RankReport]] = {}
    for result in results:
        for report in result.ranks:
            reports.setdefault(report.rank, []).append(report)
    return [_rank(reports[rank], warmup_steps) for rank in sorted(reports)]


def _rank(repeats: Sequence[RankReport], warmup_steps: int) -> RankDocument:
    last = repeats[-1]
    resident = [report.resident_bytes for report in repeats if report.resident_bytes is not None]
    return {
        "rank": last.rank,
        "host": last.host,
        "stage": last.stage,
        "step_time": spread([s for report in repeats for s in report.step_s[warmup_steps:]]),
        "input_wait": spread([s for report in repeats for s in report.input_wait_s[warmup_steps:]]),
        "memory": _largest([report.memory for report in repeats]).as_json(),
        "resident": max(resident, default=None),
    }


def spread(values: Sequence[float]) -> SpreadDocument | None:
    """Median with 10th and 90th percentile (inclusive method); None without values."""
    if not values:
        return None
    if len(values) == 1:
        return {"median": values[0], "low": values[0], "high": values[0], "count": 1}
    deciles = statistics.quantiles(values, n=10, method="inclusive")
    return {
        "median": statistics.median(values),
        "low": deciles[0],
        "high": deciles[-1],
        "count": len(values),
    }


def _peak(results: Sequence[RunResult]) -> dict[str, int | None] | None:
    memories = [report.memory for result in results for report in result.ranks]
    return _largest(memories).as_json() if memories else None


def _largest(memories: Sequence[MemoryBreakdown]) -> MemoryBreakdown:
    return max(memories, key=lambda memory: memory.total)
