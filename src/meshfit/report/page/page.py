"""A fit as one HTML page: no network, no script, the same bytes for the same document."""

import string
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from meshfit.report.documents.fit import CandidateDocument, FitDocument, SpreadDocument
from meshfit.report.measured import profiles, routing
from meshfit.report.page import charts
from meshfit.report.parts import words
from meshfit.units import format_bandwidth, format_count, format_percent


def render_page(document: FitDocument) -> str:
    """The page of one ``fit --json`` document, self-contained.

    Shows only what the document holds: a section without data is left out, a figure without a
    value is a dash, with the reason where the document gives one.
    """
    rows = [
        _row(letter, candidate, document)
        for letter, candidate in zip(_letters(), _ranked(document), strict=False)
    ]
    template = _environment().get_template("page.html.j2")
    return template.render(
        title=document["job"].get("name") or "fit",
        created_at=document.get("created_at", ""),
        summary=_summary(document),
        notes=document["notes"],
        winner=next((row for row in rows if row["won"]), None),
        winner_document=document["winner"],
        reason=document["reason"],
        rows=rows,
        charts=_charts(document, rows),
        reference=document.get("reference"),
        plan=document.get("plan"),
        model=document["model"],
        topology=document["topology"],
        workload=dict(_flat(document["job"])),
        environment=dict(_flat(document["environment"])),
        headroom=document.get("headroom"),
        warmup_steps=document.get("warmup_steps"),
        judged_steps=document.get("judged_steps"),
        series=range(8),
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("meshfit.report.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bandwidth": format_bandwidth,
        "bytes": words.size,
        "count": format_count,
        "duration": words.duration,
        "error": words.error,
        "layout": words.layout,
        "milliseconds": words.milliseconds,
        "percent": format_percent,
        "rate": words.rate,
    }
    environment.globals |= {
        "words": words,
        "profiles": profiles,
        "routing": routing,
        "absent": words.ABSENT,
    }
    return environment


def _row(letter: str, candidate: CandidateDocument, document: FitDocument) -> dict[str, Any]:
    """One candidate as the template reads it: the letter names it in tables and charts."""
    winner = document["winner"]
    return {
        **candidate,
        "letter": letter,
        "name": f"{letter}  {candidate['family']}",
        "keys": words.layout(candidate["layout"]),
        "won": winner is not None and candidate["label"] == winner["label"],
        "ok": candidate["outcome"] == "ok",
        "outcome_words": words.OUTCOMES.get(candidate["outcome"], candidate["outcome"]),
        "step_range": words.duration_spread(candidate.get("step_time_spread")),
        "rate_range": words.rate_spread(candidate.get("tokens_per_s_spread")),
        "why": words.why(candidate),
    }


def _ranked(document: FitDocument) -> list[CandidateDocument]:
    """The winner, then the others from the fastest on, then those without a throughput."""
    winner = document["winner"]
    label = winner["label"] if winner else None

    def place(candidate: CandidateDocument) -> tuple[bool, float]:
        return candidate["label"] != label, -(candidate.get("tokens_per_s") or 0)

    return sorted(document["candidates"], key=place)


def _letters() -> Iterator[str]:
    """A to Z, then AA, AB ..."""
    yield from string.ascii_uppercase
    for first in _letters():
        yield from (first + last for last in string.ascii_uppercase)


def _summary(document: FitDocument) -> list[str]:
    """The line under the title: model, workload, machine."""
    model, topology = document["model"], document["topology"]
    workload = document["job"].get("workload") or {}
    parameters = (model.get("parameters") or {}).get("total")
    facts = [
        model.get("name"),
        f"{format_count(parameters)} parameters" if parameters else None,
        f"{topology['accelerators']} x {topology.get('accelerator', 'accelerator')}"
        if topology.get("accelerators")
        else None,
        f"{workload['global_batch_size']} sequences of {workload['sequence_length']} tokens a step"
        if {"global_batch_size", "sequence_length"} <= workload.keys()
        else None,
        workload.get("precision"),
    ]
    return [str(fact) for fact in facts if fact]


def _charts(document: FitDocument, rows: Sequence[Mapping[str, Any]]) -> dict[str, Markup]:
    """Inline SVG by name; a chart without data is left out.

    The SVG is Matplotlib's, which escapes every text, so it is marked as safe here.
    """
    drawn = {
        "throughput": _throughput(rows),
        "memory": _memory(rows, document["topology"].get("capacity")),
        "ranks": _ranks(rows),
        "losses": _losses(document, rows),
    }
    return {name: Markup(svg) for name, svg in drawn.items() if svg}


def _throughput(rows: Sequence[Mapping[str, Any]]) -> str:
    measured = [_measured(row["name"], row.get("tokens_per_s_spread")) for row in rows]
    bars = [bar for bar in measured if bar is not None]
    return charts.throughput(bars) if bars else ""


def _memory(rows: Sequence[Mapping[str, Any]], capacity_bytes: int | None) -> str:
    pairs = [
        charts.MemoryPair(
            name=row["name"],
            measured=row.get("memory"),
            predicted=(row.get("predicted") or {}).get("memory"),
        )
        for row in rows
    ]
    shown = [pair for pair in pairs if pair.measured or pair.predicted]
    return charts.memory(shown, capacity_bytes=capacity_bytes) if shown else ""


def _ranks(rows: Sequence[Mapping[str, Any]]) -> str:
    groups = []
    for row in rows:
        times = [_measured(f"rank {r['rank']}", r.get("step_time")) for r in row.get("ranks", [])]
        known = [time for time in times if time is not None]
        if known:
            groups.append((row["name"], known))
    return charts.rank_times(groups) if groups else ""


def _losses(document: FitDocument, rows: Sequence[Mapping[str, Any]]) -> str:
    curves = [
        charts.LossCurve(name=row["name"], losses=row["losses"])
        for row in rows
        if row.get("losses")
    ]
    reference = document.get("reference")
    expected = reference["losses"] if reference else []
    tolerances = {row["parity"]["tolerance_loss"] for row in rows if row.get("parity")}
    if not curves:
        return ""
    return charts.losses(
        charts.LossCurve(name="reference", losses=expected) if expected else None,
        curves,
        judged_steps=document.get("judged_steps"),
        tolerance=tolerances.pop() if len(tolerances) == 1 else None,
    )


def _measured(name: str, spread: SpreadDocument | None) -> charts.Measured | None:
    if spread is None:
        return None
    low, high = spread["low"], spread["high"]
    return charts.Measured(name=name, median=spread["median"], low=low, high=high)


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested keys as ``outer.inner`` with their values as text."""
    for key, value in document.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        elif isinstance(value, list | tuple):
            yield name, ", ".join(map(str, value))
        elif value is not None:
            yield name, str(value)
