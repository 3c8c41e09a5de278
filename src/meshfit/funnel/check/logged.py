"""``meshfit compare --log``: what an engine's log says, beside what is predicted of its job."""

from collections.abc import Iterator, Mapping
from typing import Any

import pydantic_core

from meshfit.compare.logged import LoggedSpeed, logged_speed
from meshfit.errors import InputError
from meshfit.funnel.check.checking import check_document
from meshfit.funnel.check.measured import measured_document
from meshfit.job.spec import Job
from meshfit.mesh.groups import coordinates
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.engine_log import EngineLog, LoggedMemory
from meshfit.units import format_bytes, format_duration

_AS_PRINTED = {"mfu": "mfu_printed", "flops_per_s": "flops_per_s_printed"}
KINDS = ("allocated", "reserved", "resident")

RESIDENT = "resident memory is that of whole processes, libraries included; what is predicted is that of tensors"


def facts_of_job(job: Job, layout: LayoutSpec) -> dict[str, int]:
    """What reading a log may need and a log may leave out, in the words of ``EngineLog.stated``."""
    return {
        "world_size": layout.world_size,
        "global_batch_size": job.training.global_batch_size,
        "sequence_length": job.training.sequence_length,
    }


def logged_document(
    log: EngineLog, *, warmup_steps: int, job: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """What ``compare --log FILE --json`` prints without a job.

    ``log`` is what was read, ``measured`` what it comes to (``step_time`` with its percentiles,
    ``tokens_per_s``, ``mfu_printed``, ``memory`` by kind, ``losses`` by step), ``absent`` why a figure is
    not there. ``record`` is the whole of it as ``EngineLog`` keeps it.
    """
    speed = logged_speed(log, warmup_steps)
    known = {**(job or {}), **log.stated}
    absent = {_AS_PRINTED.get(name, name): why for name, why in log.absent.items()}
    if speed is None and "step_time" not in absent:
        absent["step_time"] = (
            f"a warm-up of {warmup_steps} steps (--warmup) leaves none of the {len(log.steps)} "
            f"statements"
        )
    rate = None
    if speed is None:
        absent["tokens_per_s"] = "there is no step time"
    elif missing := [
        name for name in ("global_batch_size", "sequence_length") if name not in known
    ]:
        absent["tokens_per_s"] = f"the log does not say {' and '.join(missing)}; give the job"
    else:
        batch = log.steps[-1].global_batch_size or known["global_batch_size"]
        rate = batch * known["sequence_length"] / speed.step_s
    ranks = known.get("world_size")
    return {
        "schema_version": 1,
        "log": {
            "engine": log.engine,
            "version": log.engine_version,
            "form": log.form,
            "starts": log.num_starts,
            "statements": len(log.steps),
            "first_step": log.steps[0].step,
            "last_step": log.steps[-1].step,
            "stated": log.stated,
            "notes": list(log.notes),
        },
        "measured": {
            "step_time": None if speed is None else _step_time(log, speed, warmup_steps),
            "tokens_per_s": rate,
            "tokens_per_s_per_accelerator": rate / ranks if rate and ranks else None,
            "mfu_printed": None if speed is None else speed.mfu,
            "flops_per_s_printed": None if speed is None else speed.flops_per_s,
            "memory": {kind: getattr(log.memory, kind) for kind in KINDS},
            "losses": log.losses,
        },
        "absent": absent,
        "record": pydantic_core.to_jsonable_python(log, inf_nan_mode="constants"),
    }


def _step_time(log: EngineLog, speed: LoggedSpeed, warmup_steps: int) -> dict[str, Any]:
    is_mean = speed.low_s is None and log.run_mean_step_s == speed.step_s
    return {
        "median": speed.step_s,
        "p10": speed.low_s,
        "p90": speed.high_s,
        "statements": speed.statements,
        "steps_each": speed.steps_each,
        "warmup": 0 if is_mean else warmup_steps,
        "from": "the mean of the whole run, its first step included"
        if is_mean
        else log.step_time_from,
    }


def compared_document(
    job: Job, layout: LayoutSpec, log: EngineLog, *, warmup_steps: int
) -> dict[str, Any]:
    """The same, with what is predicted of the job's layout beside it.

    ``predicted`` has ``step_time`` and ``memory`` intervals of ``label`` for ``engine``; ``comparison[]``
    one row a figure that both have (``figure``, ``measured``, ``predicted``, ``low``, ``high``, ``ratio``,
    ``inside``); ``off[]`` says what lies outside. ``measured`` gains ``mfu``, by our own formula.

    Raises:
        InputError: the log is of another setting than the job; or its throughput needs more than the
            accelerators' peak.
    """
    _require_same(job, layout, log)
    document = logged_document(log, warmup_steps=warmup_steps, job=facts_of_job(job, layout))
    check = check_document(job, layout)
    document |= {
        "job": job.name,
        "label": layout.label,
        "layout": layout.as_full_json(),
        "engine": job.profile.name,
        "estimated_with": check["estimated_with"],
        "predicted": None,
        "comparison": [],
        "off": [],
        "notes": check["notes"],
    }
    if check["memory"] is None:
        document["absent"]["predicted"] = _why_not_predicted(check)
        return document
    step_time = check["interval"]["step_time"]
    document["predicted"] = {
        "step_time": step_time,
        "tokens_per_s": check["tokens_per_s"],
        "memory": check["memory"]["interval"],
        "stages": check["memory"]["stages"],
        "time": check["time"],
        "binding": check["binding"],
    }
    measured = document["measured"]
    rows = list(_memory_rows(job, layout, log.memory, check["memory"]))
    if measured["step_time"]:
        rows.insert(0, _row("step_time", measured["step_time"]["median"], step_time))
        seen = measured_document(job, layout, measured["tokens_per_s"], step_time)
        measured["mfu"] = seen["mfu"]
        document["notes"] += [seen["suspicion"], *seen["links"]] if seen["suspicion"] else []
    if measured["memory"]["resident"] is not None:
        document["notes"].append(RESIDENT)
    document["comparison"] = rows
    document["off"] = [_words(row) for row in rows if not row["inside"]]
    return document


def _require_same(job: Job, layout: LayoutSpec, log: EngineLog) -> None:
    """Does nothing where all that the log states of its job is so in ``job``.

    Raises:
        InputError: names every difference.
    """
    ours = facts_of_job(job, layout) | {
        name: getattr(layout, name) for name in log.stated if hasattr(layout, name)
    }
    differ = [
        f"{name} {value} in the log, {ours[name]} in the job"
        for name, value in log.stated.items()
        if name in ours and ours[name] != value
    ]
    if differ:
        raise InputError(
            f"the log is of another setting than {job.name} {layout.label}: {'; '.join(differ)}. Give "
            f"the job that ran (--layout for its degrees), or leave it out to read the log alone"
        )


def _why_not_predicted(check: Mapping[str, Any]) -> str:
    if check["violations"]:
        broken = "; ".join(one["message"] for one in check["violations"])
        return f"{check['label']} is not legal by the rules of {check['engine']}: {broken}"
    return str(check["absent"]["memory"])


def _memory_rows(
    job: Job, layout: LayoutSpec, memory: LoggedMemory, predicted: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """One row for each kind that is printed and predicted, of the rank that printed it where that is
    known, else of the one that holds most. The interval is as wide as that of the whole."""
    whole = predicted["interval"]
    for kind in ("allocated", "reserved"):
        size, rank = getattr(memory, kind), getattr(memory, f"{kind}_rank", None)
        stages = [stage[kind] for stage in predicted["stages"]]
        if size is None or None in stages:
            continue
        middle = max(stages)
        if rank is not None and rank < layout.world_size:
            middle = stages[coordinates(layout, rank, job.profile.rank_order)["pp"]]
        interval = {
            "low": middle * whole["low"] / whole["middle"],
            "middle": middle,
            "high": middle * whole["high"] / whole["middle"],
        }
        yield _row(f"memory_{kind}", size, interval)


def _row(figure: str, measured: float, interval: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "figure": figure,
        "measured": measured,
        "predicted": interval["middle"],
        "low": interval["low"],
        "high": interval["high"],
        "ratio": measured / interval["middle"],
        "inside": interval["low"] <= measured <= interval["high"],
    }


def _words(row: Mapping[str, Any]) -> str:
    shown = format_duration if row["figure"] == "step_time" else format_bytes
    side = "above" if row["measured"] > row["high"] else "below"
    return (
        f"{row['figure'].replace('_', ' ')} {shown(row['measured'])} is {row['ratio']:.3g} times what is "
        f"predicted, {side} {shown(row['low'])} to {shown(row['high'])}"
    )
