"""What ``plan --json`` prints: layouts as predicted, and what is said of them together."""

from typing import Any, NotRequired, TypedDict

from meshfit.breakdown import Prediction
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.campaign import Campaign

DAY_S = 86_400.0


class CampaignDocument(TypedDict):
    """A whole training run; ``device_hours`` and ``days`` are of wall clock."""

    steps: int
    days: float
    device_hours: float
    cost: float | None
    currency: str
    goodput: float
    checkpoint: dict[str, float] | None
    """``bytes`` of one, ``save`` (s it stops training), ``interval`` (s of training between)."""


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
    useful_tokens_per_s: NotRequired[float]
    """Without tokens that only pad."""
    binding: str
    baseline: NotRequired[bool]
    tied: NotRequired[bool]
    """Whether the 80 % interval of what its step differs by from that of the fastest holds 0."""
    budget: NotRequired[CampaignDocument]


class MeshDocument(PlanCandidateDocument):
    """The best layout of one mesh."""

    rank: int
    """Its place among all layouts."""
    mesh: dict[str, int]
    variants: int
    """Others of its mesh that fit as well and lie within its interval."""
    tight: dict[str, Any] | None
    """``layout``, ``step_time`` and ``memory`` of a faster one of its mesh that fits tightly."""
    why: str
    """The largest terms of the first mesh's step; of another, what takes it apart from that."""


class RecommendedDocument(PlanCandidateDocument):
    """The simplest of the layouts that tie with the fastest; ``rank`` by prediction alone.

    ``among``: so many layouts tie, of those that were looked at; ``reason`` says it in words.
    """

    rank: int
    among: int
    reason: str


class NamedDocument(PlanCandidateDocument):
    """A layout that the job names; ``rank`` is its place among all, or the one that it would have."""

    name: str
    rank: int


class DryRunRow(TypedDict):
    """One layout whose program was run on fake tensors, on the rank that is predicted to hold most."""

    label: str
    layout: dict[str, Any]
    rank: int
    predicted: dict[str, int | None]
    """Bytes by memory category, ``allocated`` and ``reserved``, by the formulas."""
    memory: dict[str, int | None] | None
    """The same, as the program takes them; None where it was not run."""
    peak_at: dict[str, Any] | None
    out_of_memory: bool | None
    """Whether CUDA's allocator ran out of memory, ``reserved`` being what it held until then; None on
    CPU, and where it was not run."""
    seconds: float | None
    refused: str | None
    """Why it was not run."""


class SpaceDocument(TypedDict):
    """How many layouts are legal, and how many each rule rejected."""

    legal: int
    rejected: dict[str, int]
    examples: NotRequired[dict[str, Any]]
    """Rule -> ``layout`` it rejected, the rule's ``message``, and the ``nearest`` legal layout."""


class PlanDocument(TypedDict):
    """What ``plan --json`` prints."""

    schema_version: int
    space: SpaceDocument
    seconds: float
    seconds_by_tier: dict[str, float]
    candidates: list[PlanCandidateDocument]
    meshes: NotRequired[list[MeshDocument]]
    """The best layout of each mesh, ranked as all layouts are."""
    recommended: NotRequired[RecommendedDocument | None]
    """None where nothing fits."""
    named: NotRequired[list[NamedDocument]]
    """The job's ``layout`` and ``baseline``, where they can be predicted."""
    dry_run: NotRequired[list[DryRunRow]]
    """The leaders' programs on fake tensors (tier 3)."""
    job: NotRequired[dict[str, Any]]
    headroom: NotRequired[float]
    notes: NotRequired[list[str]]
    explain: NotRequired[dict[str, Any]]
    asked: NotRequired[list[dict[str, Any]]]
    """The job's ``layout`` and ``baseline`` as ``check`` sees them, with their ``rank``."""
    too_large: NotRequired[list[dict[str, Any]]]
    """Layouts that would be faster than all that fit, and ``changes`` that make them fit."""
    placements: NotRequired[list[dict[str, Any]]]
    """Of the best layouts: orders of their axes with their cost, and ranks on each host."""
    sensitivity: NotRequired[list[dict[str, Any]]]
    calibration: NotRequired[dict[str, Any]]
    """The file of measured runs, factors by kind of term, and the ``order`` without them."""


def plan_candidate(
    *,
    layout: LayoutSpec,
    prediction: Prediction,
    verdict: str,
    capacity_bytes: int | None,
    baseline: bool = False,
    campaign: CampaignDocument | None = None,
    useful_share: float = 1.0,
) -> PlanCandidateDocument:
    """One predicted layout; ``capacity_bytes`` is what one device reports, ``useful_share`` what of
    all tokens does not pad."""
    document: PlanCandidateDocument = {
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
        "useful_tokens_per_s": useful_share * prediction.tokens_per_s,
        "binding": prediction.binding,
        "baseline": baseline,
    }
    if campaign is not None:
        document["budget"] = campaign
    return document


def campaign_document(campaign: Campaign, currency: str) -> CampaignDocument:
    """A whole training run; ``cost`` is null without a price, ``checkpoint`` without failures."""
    saved = campaign.checkpointing
    return {
        "steps": campaign.steps,
        "days": campaign.wall_s / DAY_S,
        "device_hours": campaign.device_h,
        "cost": campaign.cost,
        "currency": currency,
        "goodput": campaign.goodput,
        "checkpoint": None
        if saved is None
        else {"bytes": saved.size_bytes, "save": saved.save_s, "interval": saved.interval_s},
    }
