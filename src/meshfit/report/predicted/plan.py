"""What ``plan`` found, for the terminal: the best layouts by mesh or one by one, what was left behind."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from meshfit.report.documents.plan import (
    CampaignDocument,
    PlanCandidateDocument,
    PlanDocument,
    SpaceDocument,
)
from meshfit.report.parts import words
from meshfit.report.parts.calibration import calibration_view
from meshfit.report.parts.cells import (
    VERDICT_STYLES,
    KeysText,
    layout_cell,
    memory_bar,
    stacked_cell,
)
from meshfit.report.parts.titled import titled_table
from meshfit.units import format_count, format_duration, format_percent

TIE = "="
"""Beside the rank of a layout that ties with the fastest."""


def plan_view(document: PlanDocument, *, top: int = 20, every: bool = False) -> RenderableType:
    """What was searched, what rules rejected, and the best ``top`` meshes (``every``: layouts)."""
    meshes = [] if every else mesh_rows(document, top)
    shown = document["candidates"][:top]
    return Group(
        space_line(document["space"], document.get("seconds")),
        *(Text(note) for note in document.get("notes", ())),
        *nothing_fits(document["candidates"]),
        *recommended(document),
        *([mesh_table(meshes, headroom=document.get("headroom"))] if meshes else []),
        *([plan_table(shown, headroom=document.get("headroom"))] if shown and not meshes else []),
        *left_behind(document),
        *([calibration_view(document["calibration"])] if document.get("calibration") else []),
        rejected_table(document["space"]["rejected"], document["space"].get("examples")),
    )


def nothing_fits(candidates: Sequence[PlanCandidateDocument]) -> list[Text]:
    """That no layout fits, and by how much the first, which needs least, does not; else nothing."""
    if not candidates or candidates[0]["verdict"] != "does_not_fit":
        return []
    least = candidates[0]
    total, capacity = least["memory"].get("total"), least["memory"].get("capacity")
    return [
        Text.assemble(
            ("Nothing fits. ", "bold red"),
            f"{words.layout(least['layout'])} needs least: {words.size(total)} a rank, of "
            f"{words.size(capacity)}. More or larger accelerators, adapters (method: lora, qlora), "
            f"other states (precision, optimizer), or a wider search would change that.",
        )
    ]


def recommended(document: PlanDocument) -> list[Text]:
    """The layout that is recommended, and why it and no other; nothing where none fits."""
    found = document.get("recommended")
    if not found:
        return []
    return [
        Text.assemble(
            ("Recommended: ", "bold green"),
            (words.layout(found["layout"]), "bold"),
            f", {words.duration(found['time'].get('step'))} a step: {found['reason']}.",
        )
    ]


def left_behind(document: PlanDocument) -> list[RenderableType]:
    """Layouts that a person asked for, and fast ones that do not fit, each with what would help."""
    asked = [
        Group(_asked(one), *(Text(f"  • {line}") for line in one["advice"]))
        for one in document.get("asked", ())
    ]
    too_large = [
        Group(
            Text.assemble(
                (words.layout(one["layout"]), "bold"),
                " would be faster, but does not fit",
                f" ({words.duration(one['step_time'])} a step)",
            ),
            *(Text(f"  • {line}") for line in one["advice"]),
        )
        for one in document.get("too_large", ())
    ]
    return [*asked, *too_large]


def _asked(one: Mapping[str, Any]) -> Text:
    """``baseline dp_shard=8: fits, #12 of the plan, 1.20 s a step``."""
    verdict = one["verdict"] or "not predicted"
    text = Text.assemble(
        f"{one['name']} ",
        (words.layout(one["layout"]), "bold"),
        ": ",
        (words.VERDICTS.get(verdict, verdict.replace("_", " ")), VERDICT_STYLES.get(verdict, "")),
    )
    if one["rank"] is not None:
        text.append(f", #{one['rank']} of the plan")
    if one["step_time"] is not None:
        text.append(f", {words.duration(one['step_time'])} a step")
    for violation in one["violations"]:
        text.append(f"\n  ✗ {violation['message']}")
    return text


def plan_table(
    candidates: Sequence[PlanCandidateDocument], *, headroom: float | None = None
) -> Table:
    """Predicted candidates in the order given, best first."""
    return _predicted_table(
        "Candidates, predicted",
        [
            (_number(position, candidate), candidate, Text(candidate["binding"]))
            for position, candidate in enumerate(candidates, 1)
        ],
        last="bound by",
        caption=_plan_caption(headroom),
    )


def mesh_rows(document: PlanDocument, top: int) -> list[Mapping[str, Any]]:
    """The best layouts of ``top`` meshes, and between them, by rank, the recommended one and those that
    the job names."""
    rows: list[Mapping[str, Any]] = list(document.get("meshes", ())[:top])
    if not rows:
        return []
    for named in _named(document):
        same = next((k for k, row in enumerate(rows) if row["label"] == named["label"]), None)
        if same is not None:
            names = [rows[same].get("name"), named["name"]]
            rows[same] = {**rows[same], "name": ", ".join(filter(None, names))}
            continue
        behind = (k for k, row in enumerate(rows) if row["rank"] > named["rank"])
        rows.insert(next(behind, len(rows)), named)
    return rows


def _named(document: PlanDocument) -> list[Mapping[str, Any]]:
    found = document.get("recommended")
    best = [{**found, "name": "recommended", "tied": found["among"] > 1}] if found else []
    return [*best, *document.get("named", ())]


def _number(rank: int, row: Mapping[str, Any]) -> str:
    """``12``, with the mark of a tie."""
    return f"{rank:,} {TIE}" if row.get("tied") else f"{rank:,}"


def mesh_table(rows: Sequence[Mapping[str, Any]], *, headroom: float | None = None) -> Table:
    """One row a mesh, and those that the job names, in the order given."""
    return _predicted_table(
        "Best layout of each mesh, predicted",
        [(_number(row["rank"], row), row, _why(row)) for row in rows],
        last="what takes it",
        caption=_mesh_caption(headroom),
    )


def _predicted_table(
    title: str, rows: Sequence[tuple[str, Mapping[str, Any], Text]], *, last: str, caption: str
) -> Table:
    """Predicted layouts: the number of each, the layout, and what stands in the ``last`` column."""
    table = titled_table(title, caption=caption)
    table.add_column("#", justify="right", style="dim", overflow="fold")
    table.add_column("layout", overflow="fold")
    table.add_column("memory", overflow="fold")
    table.add_column("step time", justify="right", overflow="fold")
    table.add_column("tokens/s", justify="right", overflow="fold")
    has_budget = any("budget" in row for _, row, _ in rows)
    if has_budget:
        table.add_column("whole run", justify="right", overflow="fold")
    table.add_column(last, overflow="fold")
    for number, row, why in rows:
        table.add_row(
            number,
            layout_cell(row),
            memory_bar(row["memory"], row["verdict"]),
            stacked_cell(
                words.duration(row["time"].get("step")),
                words.interval(row.get("interval"), "step_time"),
            ),
            _rate(row),
            *([_whole_run(row.get("budget"))] if has_budget else []),
            why,
        )
    return table


def _why(row: Mapping[str, Any]) -> Text:
    """Terms; below them how many variants come close, and a faster one that fits tightly."""
    if "why" not in row:
        return Text(str(row["binding"]))
    below = f"{row['variants']:,} variants within its interval" if row["variants"] else ""
    tight = row["tight"]
    if tight is not None:
        changed = dict(tight["layout"])
        apart = {key: value for key, value in changed.items() if row["layout"].get(key) != value}
        apart |= {key: None for key in row["layout"] if key not in changed}
        keys = ", ".join(
            f"no {key}" if value is None else words.layout({key: value})
            for key, value in apart.items()
        )
        at = f"tight at {words.size(tight['memory'])}: {words.duration(tight['step_time'])} with {keys}"
        below = "\n".join(filter(None, (below, at)))
    return stacked_cell(row["why"], below)


def _mesh_caption(headroom: float | None) -> str:
    return (
        f"#: rank among all layouts (--all lists them); {_plan_caption(headroom)}\n"
        "what takes it: the largest terms of the first, and how the others differ from it"
    )


def _plan_caption(headroom: float | None) -> str:
    interval = (
        f"{TIE}: ties with the fastest (the 80 % interval of the difference of their steps holds 0); "
        "below a step time: its interval"
    )
    if headroom is None:
        return interval
    free = format_percent(headroom)
    return f"{interval}; fits: the upper end of the memory interval leaves {free} free"


def _rate(candidate: Mapping[str, Any]) -> Text:
    """Tokens of documents a second; below them all that are processed, where some only pad."""
    processed = candidate.get("tokens_per_s")
    useful = candidate.get("useful_tokens_per_s", processed)
    return stacked_cell(
        words.rate(useful), "" if useful == processed else f"{words.rate(processed)} with padding"
    )


def _whole_run(budget: CampaignDocument | None) -> Text:
    """Days; below them cost (else accelerator-hours), and goodput where machines fail."""
    if budget is None:
        return Text(words.ABSENT)
    cost = budget["cost"]
    spent = (
        f"{format_count(budget['device_hours'])} GPU-h"
        if cost is None
        else f"{format_count(cost)} {budget['currency']}"
    )
    if budget["checkpoint"] is not None:
        spent += f"\ngoodput {format_percent(budget['goodput'])}"
    return stacked_cell(f"{budget['days']:,.1f} days", spent)


def space_line(space: SpaceDocument, seconds: float | None) -> Text:
    """``1,204 legal layouts, 3,010 rejected, in 0.21 s``."""
    rejected = sum(space["rejected"].values())
    text = f"{space['legal']:,} legal layouts, {rejected:,} rejected"
    return Text(f"{text}, in {format_duration(seconds)}" if seconds else text)


def rejected_table(
    rejected: Mapping[str, int], examples: Mapping[str, Any] | None = None
) -> RenderableType:
    """Layouts by the rule that rejected them, the rule with the most first, each with an example
    and the legal layout nearest to it."""
    if not rejected:
        return Text("No rule rejected a layout.", style="dim")
    table = titled_table("Rejected, by rule")
    table.add_column("rule")
    table.add_column("layouts", justify="right")
    if examples:
        table.add_column("for example", overflow="fold", style="dim")
        table.add_column("nearest legal", overflow="fold", style="dim")
    for rule, count in sorted(rejected.items(), key=lambda item: (-item[1], item[0])):
        table.add_row(escape(rule), f"{count:,}", *_example((examples or {}).get(rule)))
    return table


def _example(example: Mapping[str, Any] | None) -> tuple[RenderableType, ...]:
    if example is None:
        return ()
    nearest = example["nearest"]
    return KeysText(example["layout"]), words.ABSENT if nearest is None else KeysText(nearest)
