"""``plan --explain``: what each axis of one layout does to this model and workload."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from meshfit.errors import InputError
from meshfit.funnel.explain.holdings import PipelineRank, pipeline_ranks, rank_holding
from meshfit.funnel.explain.replicas import OneLayout, held_alike
from meshfit.funnel.explain.traffic import Exchange, rank_exchanges
from meshfit.funnel.space.estimating import stand_in_note, why_not_modelled
from meshfit.funnel.space.planning import estimate_candidates
from meshfit.job.spec import Job
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.explain import AxisShare, axis_shares
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.grouped import group_of_one
from meshfit.predict.time.terms import EXPOSED_TERMS


def explain_document(job: Job, layout: LayoutSpec) -> dict[str, Any]:
    """The key ``explain`` of ``plan --json`` for a legal layout.

    ``rows`` has one entry an axis with more than one rank: ``axis``, ``degree``, ``divides[]``
    (``dimension``, ``whole``, ``part``, ``copies``), ``replicated`` (state: bytes that each of its
    ranks holds alike), ``collectives[]``, ``level`` and ``leaves_host``. A collective has ``times``
    a step, ``bytes`` that each rank sends in a step, ``exposed`` seconds of it, and ``parts[]`` of
    ``what``, ``times``, ``bytes`` and ``formula``; what shows of ranks of an expert counts under the
    axes that these are taken from. Bytes of a collective are those of the pipeline
    rank that sends most by it along the axis. ``absent`` says why a key is missing.
    """
    shares = axis_shares(job.model, job.training, job.topology, layout, job.profile)
    rows = [_row(share) for share in shares]
    document: dict[str, Any] = {
        "layout": layout.as_json(),
        "label": layout.label,
        "rows": rows,
        "notes": [],
        "absent": {},
    }
    if job.profile.kind == "serving":
        reason = why_not_modelled(job, layout)
        return document | {"absent": dict.fromkeys(("replicated", "collectives"), reason)}
    exposed, reason = _exposed(job, layout)
    _add_bytes(rows, job, layout, exposed)
    if reason is not None:
        return document | {"absent": {"exposed": reason}}
    return document | {"notes": [note for note in [stand_in_note(job.profile)] if note]}


def _row(share: AxisShare) -> dict[str, Any]:
    return {
        "axis": share.axis,
        "degree": share.degree,
        "divides": [
            {"dimension": one.dimension, "whole": one.whole, "part": one.part, "copies": one.copies}
            for one in share.divides
        ],
        "replicated": None,
        "collectives": None,
        "level": share.level,
        "leaves_host": share.leaves_host,
    }


def _add_bytes(
    rows: list[dict[str, Any]], job: Job, layout: LayoutSpec, exposed: dict[str, float]
) -> None:
    """What stays replicated over each axis, and what its collectives send; ``exposed`` seconds by
    collective and axis, empty where they are not known."""
    group = group_of_one(job.model, job.training, job.topology, layout, job.profile)
    step = OneLayout(layout=layout, group=group)
    sent = _sent_by_axis(rank_exchanges(group))
    fullest = max(pipeline_ranks(job.model, layout), key=lambda rank: _parameters(rank, step))
    axes = {row["axis"] for row in rows}
    for row in rows:
        row["replicated"] = held_alike(row["axis"], fullest, step)
        row["collectives"] = [
            _collective(found, exposed)
            for axis in _axes_of_row(row["axis"], axes)
            for found in sent.get(axis, {}).values()
        ]


def _parameters(rank: PipelineRank, step: OneLayout) -> int:
    return rank_holding(rank, step.model, step.profile).total


def _axes_of_row(axis: str, axes: set[str]) -> list[str]:
    """Context-parallel ranks join those that shard or replicate, and stand for them alone."""
    if axis != "cp":
        return [axis]
    return ["cp", *(name for name in ("dp_shard", "dp_replicate") if name not in axes)]


def _exposed(job: Job, layout: LayoutSpec) -> tuple[dict[str, float], str | None]:
    """Seconds that no computation hides, by collective and axis; or none, and why."""
    reason = why_not_modelled(job, layout)
    if reason is not None:
        return {}, reason
    try:
        estimates, _ = estimate_candidates(job, Candidates.from_layouts([layout]))
    except InputError as error:
        return {}, str(error)
    return dict(estimates.prediction(0).time.exposed), None


Sent = dict[str, list[Exchange]]
"""Collective -> its exchanges along one axis."""


def _sent_by_axis(ranks: Iterable[Iterable[Exchange]]) -> dict[str, Sent]:
    """Axis -> what goes along it; each collective on the pipeline rank that sends most by it."""
    most: dict[str, Sent] = defaultdict(dict)
    for found in ranks:
        by_axis: dict[str, Sent] = defaultdict(lambda: defaultdict(list))
        for one in found:
            by_axis[one.axis][one.collective].append(one)
        for axis, sent in by_axis.items():
            for collective, exchanged in sent.items():
                if _bytes(exchanged) > _bytes(most[axis].get(collective, [])):
                    most[axis][collective] = exchanged
    return most


def _bytes(exchanged: Iterable[Exchange]) -> float:
    return sum(one.sent_bytes for one in exchanged)


def _collective(found: list[Exchange], exposed: dict[str, float]) -> dict[str, Any]:
    first = found[0]
    own = f"{first.collective}.{first.axis}"
    parts = [
        {
            "what": one.what,
            "times": one.times,
            "bytes": round(one.sent_bytes),
            "formula": one.formula,
        }
        for one in _merged(found)
    ]
    return {
        "collective": first.collective,
        "times": sum(part["times"] for part in parts),
        "bytes": sum(part["bytes"] for part in parts),
        "exposed": exposed.get(own, 0.0) if exposed and own in EXPOSED_TERMS else None,
        "parts": parts,
    }


def _merged(found: list[Exchange]) -> list[Exchange]:
    """Exchanges that differ in nothing but how often they happen (kinds of layer) are one."""
    merged: dict[tuple[str, str], Exchange] = {}
    for one in found:
        same = merged.get((one.what, one.size))
        merged[one.what, one.size] = one if same is None else same.also(one)
    return list(merged.values())
