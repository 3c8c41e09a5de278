"""``plan --explain``: what each axis of one layout does to this model and workload."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from meshfit.funnel.estimating import (
    as_estimated,
    estimating_profile,
    stand_in_note,
    why_not_modelled,
)
from meshfit.funnel.planning import estimate_candidates
from meshfit.job.spec import Job
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.explain import AxisShare, axis_shares
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.estimate import group_of_one
from meshfit.predict.group import LayoutGroup
from meshfit.predict.memory import state_bytes
from meshfit.predict.messages import Message, expert_messages, rank_messages
from meshfit.predict.parameters import on_rank, rank_parameters
from meshfit.workload.counts import ParameterSplit
from meshfit.workload.training import OPTIMIZER_MOMENTS

STATES = ("parameters", "gradients", "optimizer")

NOT_IN_TIME = "the time model does not cover experts yet"


def explain_document(job: Job, layout: LayoutSpec) -> dict[str, Any]:
    """The key ``explain`` of ``plan --json`` for a legal layout.

    ``rows`` has one entry an axis with more than one rank: ``axis``, ``degree``, ``divides[]``
    (``dimension``, ``whole``, ``part``, ``copies``), ``replicated`` (state: bytes that each of its
    ranks holds alike), ``collectives[]`` (``collective``, ``times`` a step, ``bytes`` that each
    rank sends in a step, ``exposed`` seconds of it), ``level`` and ``leaves_host``. Bytes are those
    of the pipeline rank that sends most. ``absent`` says why a key is missing.
    """
    shares = axis_shares(job.model, job.training, job.topology, layout, job.profile)
    reason = why_not_modelled(job, layout)
    rows = [_row(share) for share in shares]
    document: dict[str, Any] = {
        "layout": layout.as_json(),
        "label": layout.label,
        "rows": rows,
        "notes": [note for note in [stand_in_note(job.profile)] if note],
        "absent": {} if reason is None else dict.fromkeys(("replicated", "collectives"), reason),
    }
    if reason is None:
        _add_bytes(rows, job, layout)
    elif job.profile.kind == "training" and layout.ep > 1:
        _add_dispatch(rows, job, layout)
    return document


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


def _add_bytes(rows: list[dict[str, Any]], job: Job, layout: LayoutSpec) -> None:
    """What stays replicated over each axis, and what its collectives send."""
    group = _group(job, layout)
    exposed = _exposed(job, layout)
    sent = _sent_by_axis(rank_messages(shape, group) for shape, _ in group.pipeline.distinct_ranks)
    held = _held_by_axis(group)
    axes = {row["axis"] for row in rows}
    for row in rows:
        row["replicated"] = held.get(row["axis"], dict.fromkeys(STATES, 0))
        row["collectives"] = [
            message | {"exposed": exposed.get(message["term"], 0.0)}
            for axis in _axes_of_row(row["axis"], axes)
            for message in sent.get(axis, [])
        ]
        for message in row["collectives"]:
            message.pop("term")


def _add_dispatch(rows: list[dict[str, Any]], job: Job, layout: LayoutSpec) -> None:
    """The experts' own collective, which needs no model of memory."""
    group = _group(job, layout)
    sent = _sent_by_axis(
        expert_messages(shape, group) for shape, _ in group.pipeline.distinct_ranks
    )
    for row in rows:
        if row["axis"] == "ep":
            row["collectives"] = [
                {key: value for key, value in message.items() if key != "term"}
                | {"exposed": None, "absent": NOT_IN_TIME}
                for message in sent.get("ep", [])
            ]


def _axes_of_row(axis: str, axes: set[str]) -> list[str]:
    """Context-parallel ranks join those that shard or replicate, and stand for them alone."""
    if axis != "cp":
        return [axis]
    return ["cp", *(name for name in ("dp_shard", "dp_replicate") if name not in axes)]


def _group(job: Job, layout: LayoutSpec) -> LayoutGroup:
    profile = estimating_profile(job.profile)
    return group_of_one(job.model, job.training, job.topology, layout, profile)


def _exposed(job: Job, layout: LayoutSpec) -> dict[str, float]:
    estimates, _ = estimate_candidates(as_estimated(job), Candidates.from_layouts([layout]))
    return dict(estimates.prediction(0).time.exposed)


def _sent_by_axis(
    ranks: Iterable[Iterable[Message]],
) -> dict[str, list[dict[str, Any]]]:
    """Axis -> its collectives, on the pipeline rank that sends most along it."""
    most: dict[str, list[dict[str, Any]]] = {}
    for messages in ranks:
        for axis, entries in _sent(messages).items():
            if _bytes(entries) > _bytes(most.get(axis, [])):
                most[axis] = entries
    return most


def _sent(messages: Iterable[Message]) -> dict[str, list[dict[str, Any]]]:
    totals: dict[tuple[str, str], dict[str, Any]] = {}
    for message in messages:
        times, sent = float(message.times[0]), float(message.sent_bytes[0])
        if sent == 0:
            continue
        entry = totals.setdefault(
            (message.axis, message.collective),
            {"collective": message.collective, "term": message.term, "times": 0, "bytes": 0},
        )
        entry["times"] += round(times)
        entry["bytes"] += round(sent)
    by_axis = defaultdict(list)
    for (axis, _), entry in totals.items():
        by_axis[axis].append(entry)
    return by_axis


def _bytes(entries: list[dict[str, Any]]) -> int:
    return sum(int(entry["bytes"]) for entry in entries)


def _held_by_axis(group: LayoutGroup) -> dict[str, dict[str, int]]:
    """Axis -> bytes of each state that every rank of one of its groups holds alike, on the pipeline
    rank that holds most."""
    columns = group.columns
    shape = max(
        (shape for shape, _ in group.pipeline.distinct_ranks),
        key=lambda one: rank_parameters(one, group.model).total,
    )
    held = state_bytes(shape, group)
    everything = {name: round(float(getattr(held, name)[0])) for name in STATES}
    sharded = {
        "parameters": bool(columns.shards_parameters[0]),
        "gradients": bool(columns.shards_parameters[0]),
        "optimizer": bool(columns.shards_optimizer[0]),
    }
    unsharded = {name: 0 if sharded[name] else size for name, size in everything.items()}
    uncut = ParameterSplit(sharded=0, replicated=rank_parameters(shape, group.model).replicated)
    return {
        "dp_replicate": everything,
        "dp_shard": unsharded,
        "cp": unsharded,
        "tp": _states_of(uncut, group, sharded),
        "pp": _tied_copy(group, sharded),
    }


def _tied_copy(group: LayoutGroup, sharded: dict[str, bool]) -> dict[str, int]:
    """A tied embedding, which the first and the last stage both hold."""
    model = group.model
    size = model.vocab_size * model.embedding_width if model.tie_word_embeddings else 0
    return _states_of(ParameterSplit(sharded=size), group, sharded)


def _states_of(
    split: ParameterSplit, group: LayoutGroup, sharded: dict[str, bool]
) -> dict[str, int]:
    """Bytes of the states of these parameters on one rank."""
    columns, precision = group.columns, group.training.precision
    held = float(on_rank(split, columns.tp)[0])
    moments = OPTIMIZER_MOMENTS[group.training.optimizer] * precision.moment_bytes
    each = {
        "parameters": precision.parameter_bytes,
        "gradients": precision.gradient_bytes,
        "optimizer": moments,
    }
    shards = int(np.asarray(columns.state_shard)[0])
    return {
        name: round(held * size / (shards if sharded[name] else 1)) for name, size in each.items()
    }
