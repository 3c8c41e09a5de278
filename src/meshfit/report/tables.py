"""Documents as Rich renderables for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from meshfit.report import words
from meshfit.report.calibration import calibration_view
from meshfit.report.documents import (
    CampaignDocument,
    CandidateDocument,
    FitDocument,
    PlanCandidateDocument,
    PlanDocument,
    SpaceDocument,
    ViolationDocument,
)
from meshfit.report.profiles import profile_table
from meshfit.report.routing import routing_table
from meshfit.report.titled import titled_table
from meshfit.units import format_count, format_duration, format_percent

_VERDICT_STYLES = {"fits": "green", "tight": "yellow", "does_not_fit": "red", "invalid": "red"}
_BAR_CELLS = 8


def plan_view(document: PlanDocument, *, top: int = 20, every: bool = False) -> RenderableType:
    """What was searched, what rules rejected, and the best ``top`` meshes (``every``: layouts)."""
    meshes = [] if every else mesh_rows(document, top)
    shown = document["candidates"][:top]
    return Group(
        space_line(document["space"], document.get("seconds")),
        *(Text(note) for note in document.get("notes", ())),
        *nothing_fits(document["candidates"]),
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
        (words.VERDICTS.get(verdict, verdict.replace("_", " ")), _VERDICT_STYLES.get(verdict, "")),
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
            (str(position), candidate, Text(candidate["binding"]))
            for position, candidate in enumerate(candidates, 1)
        ],
        last="bound by",
        caption=_plan_caption(headroom),
    )


def mesh_rows(document: PlanDocument, top: int) -> list[Mapping[str, Any]]:
    """The best layouts of ``top`` meshes, and between them those that the job names, by rank."""
    rows: list[Mapping[str, Any]] = list(document.get("meshes", ())[:top])
    if not rows:
        return []
    for named in document.get("named", ()):
        same = next((k for k, row in enumerate(rows) if row["label"] == named["label"]), None)
        if same is not None:
            rows[same] = {**rows[same], "name": named["name"]}
            continue
        behind = (k for k, row in enumerate(rows) if row["rank"] > named["rank"])
        rows.insert(next(behind, len(rows)), named)
    return rows


def mesh_table(rows: Sequence[Mapping[str, Any]], *, headroom: float | None = None) -> Table:
    """One row a mesh, and those that the job names, in the order given."""
    return _predicted_table(
        "Best layout of each mesh, predicted",
        [(f"{row['rank']:,}", row, _why(row)) for row in rows],
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
            _layout(row),
            memory_bar(row["memory"], row["verdict"]),
            _stacked(
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
        keys = " ".join(
            f"no {key}" if value is None else words.layout({key: value})
            for key, value in apart.items()
        )
        at = f"tight at {words.size(tight['memory'])}: {words.duration(tight['step_time'])} with {keys}"
        below = "\n".join(filter(None, (below, at)))
    return _stacked(row["why"], below)


def _mesh_caption(headroom: float | None) -> str:
    return (
        f"#: rank among all layouts (--all lists them); {_plan_caption(headroom)}\n"
        "what takes it: the largest terms of the first, and how the others differ from it"
    )


def _rate(candidate: Mapping[str, Any]) -> Text:
    """Tokens of documents a second; below them all that are processed, where some only pad."""
    processed = candidate.get("tokens_per_s")
    useful = candidate.get("useful_tokens_per_s", processed)
    return _stacked(
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
    return _stacked(f"{budget['days']:,.1f} days", spent)


def memory_bar(memory: Mapping[str, int | None], verdict: str) -> Text:
    """The verdict beside a bar of how full the fullest rank's device is, and both sizes below."""
    total, capacity = memory.get("total"), memory.get("capacity")
    style = _VERDICT_STYLES.get(verdict, "")
    phrase = (words.VERDICTS.get(verdict, verdict), style)
    if not capacity or total is None:
        return Text.assemble(phrase, f"\n{words.size(total)}")
    filled = min(_BAR_CELLS, max(1, round(_BAR_CELLS * total / capacity)))
    return Text.assemble(
        ("█" * filled, style),
        ("░" * (_BAR_CELLS - filled) + " ", "dim"),
        phrase,
        f"\n{words.size(total)} of {words.size(capacity)}",
    )


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


def _example(example: Mapping[str, Any] | None) -> tuple[str, ...]:
    if example is None:
        return ()
    nearest = example["nearest"]
    return words.layout(example["layout"]), words.ABSENT if nearest is None else words.layout(
        nearest
    )


def fit_view(document: FitDocument) -> RenderableType:
    """Notes, the winner with its reason, every candidate, where their steps and their tokens go, and why
    each stands where it does."""
    profiled = [row for row in document["candidates"] if row.get("profile") is not None]
    profile = [profile_table(profiled)] if profiled else []
    routed = [row for row in document["candidates"] if row.get("routing") is not None]
    routing = [routing_table(routed)] if routed else []
    return Group(
        *notes(document),
        headline(document),
        fit_table(document),
        *profile,
        *routing,
        reasons(document),
    )


def notes(document: FitDocument) -> list[RenderableType]:
    """Sentences that stand above the winner, each in a frame of its own."""
    return [
        Panel(Text(note), border_style="yellow", box=box.ROUNDED, expand=False)
        for note in document["notes"]
    ]


def headline(document: FitDocument) -> RenderableType:
    """The winner and what it was measured on, or that there is none, with the reason."""
    winner = document["winner"]
    if winner is None:
        return Panel(
            Text.assemble(("No winner. ", "bold red"), document["reason"]), border_style="red"
        )
    where = f"engine {winner['engine']}, {winner['world_size']} x {winner['accelerator']}, measured"
    return Panel(
        Text.assemble(
            ("Winner: ", "bold green"),
            (words.layout(winner["layout"]), "bold"),
            f"\n{document['reason']}\n",
            (where, "dim"),
        ),
        border_style="green",
    )


def fit_table(document: FitDocument) -> Table:
    """Every candidate that was tried, in the order of the document."""
    winner = document["winner"]
    table = titled_table(
        "Candidates, measured",
        caption="below a figure: its 10th to 90th percentile; below memory: what was predicted",
    )
    table.add_column("layout", overflow="fold")
    table.add_column("outcome, parity", overflow="fold")
    table.add_column("step time", justify="right", overflow="fold")
    table.add_column("tokens/s", justify="right", overflow="fold")
    table.add_column("memory", justify="right", overflow="fold")
    for candidate in document["candidates"]:
        won = winner is not None and candidate["label"] == winner["label"]
        predicted = candidate.get("predicted") or {}
        memory, expected = candidate.get("memory") or {}, predicted.get("memory") or {}
        table.add_row(
            _layout(candidate, won=won),
            _outcome(candidate),
            _stacked(
                words.duration(candidate.get("step_time")),
                words.duration_spread(candidate.get("step_time_spread")),
            ),
            _stacked(
                words.rate(candidate.get("tokens_per_s")),
                words.rate_spread(candidate.get("tokens_per_s_spread")),
            ),
            _stacked(
                words.size(memory.get("total")),
                words.size(expected["total"]) if expected else "",
            ),
        )
    return table


def reasons(document: FitDocument) -> RenderableType:
    """One paragraph a candidate: how it failed, or why it won, tied or lost."""
    lines: list[RenderableType] = []
    for candidate in document["candidates"]:
        if why := words.why(candidate):
            keys = words.layout(candidate["layout"])
            lines.append(Text.assemble((keys, "bold"), f": {why.rstrip('.')}."))
    return Group(*lines)


def inventory_table(document: Mapping[str, Any]) -> Table:
    """What ``model --json`` prints: parameters by part, FLOPs and KV bytes per token."""
    parameters = document["parameters"]
    table = titled_table("Parameters by part")
    table.add_column("part")
    table.add_column("parameters", justify="right")
    table.add_column("share", justify="right")
    for part, count in parameters["by_part"].items():
        if count:
            share = format_percent(count / parameters["total"])
            table.add_row(part.replace("_", " "), f"{count:,}", share)
    table.add_section()
    table.add_row("total", f"{parameters['total']:,}", format_count(parameters["total"]))
    if parameters.get("active") not in (None, parameters["total"]):
        table.add_row(
            "active per token", f"{parameters['active']:,}", format_count(parameters["active"])
        )
    for name, figure in _inventory_figures(document):
        table.add_row(name, figure, "")
    return table


def _inventory_figures(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    flops, kv_cache = document.get("flops") or {}, document.get("kv_cache") or {}
    figures = []
    if flops.get("training_per_token") is not None:
        name = f"training FLOPs per token at {flops.get('sequence_length', '?')} tokens"
        figures.append((name, format_count(flops["training_per_token"])))
    if kv_cache.get("bytes_per_token") is not None:
        figures.append(("KV cache per token, 16 bit", words.size(kv_cache["bytes_per_token"])))
    return figures


def inventory_memory_table(document: Mapping[str, Any]) -> Table:
    """Weights, caches and training state of what ``model --json`` prints, undivided by a layout."""
    table = titled_table("Memory, undivided")
    table.add_column("what")
    table.add_column("bytes", justify="right")
    for name, figure in _inventory_memory(document):
        table.add_row(name, words.size(figure))
    return table


def _inventory_memory(document: Mapping[str, Any]) -> list[tuple[str, int]]:
    weights, cache = document["weights"], document["kv_cache"]
    length = document["flops"]["sequence_length"]
    in_full = length * cache["bytes_per_token"]
    figures = []
    if "checkpoint" in weights:
        stored = weights["checkpoint"]
        figures.append((f"weights as stored: {stored['format']}", stored["bytes"]))
    figures += [(f"weights in {name}", weights[name]) for name in ("bf16", "fp8", "int4")]
    figures.append((f"KV cache of {length} tokens, every layer in full", in_full))
    if cache["windowed_bytes_per_sequence"] != in_full:
        windowed = cache["windowed_bytes_per_sequence"]
        figures.append(("  windowed layers up to their window", windowed))
    names = {
        "indexer_bytes_per_token": "indexer keys per token",
        "cross_attention_bytes_per_source_token": "cross-attention cache per source token",
        "state_bytes_per_sequence": "recurrent state per sequence",
    }
    figures += [(name, cache[key]) for key, name in names.items() if key in cache]
    for precision, optimizer in (("bf16_mixed", "adamw"), ("bf16", "adamw_8bit")):
        state = document["training_state"][precision][optimizer]["total"]
        figures.append((f"training state, {precision}, {optimizer}", state))
    return figures


def violations_list(violations: Sequence[ViolationDocument]) -> RenderableType:
    """Every broken rule with its message, which names the nearest legal values."""
    if not violations:
        return Text("No rule is broken.", style="green")
    return Group(*(_violation(violation, ("✗ ", "bold red")) for violation in violations))


def warnings_list(warnings: Sequence[ViolationDocument]) -> RenderableType:
    """What a legal layout costs or needs, in the form of violations."""
    return Group(*(_violation(warning, ("! ", "bold yellow")) for warning in warnings))


def _violation(violation: ViolationDocument, mark: tuple[str, str]) -> RenderableType:
    option = (violation.get("option") or "", "dim")
    head = Text.assemble(mark, (violation["rule"], "bold"), "  ", option)
    return Group(head, Padding(Text(violation["message"]), (0, 0, 0, 2)))


def _outcome(candidate: CandidateDocument) -> Text:
    style = "green" if candidate["outcome"] == "ok" else "red"
    text = Text(words.OUTCOMES.get(candidate["outcome"], candidate["outcome"]), style=style)
    found = candidate.get("parity")
    if found:
        text.append(f"\nloss {words.error(found['loss_error'])}", style="dim")
        if found["auxiliary_error"] is not None:
            text.append(f"\nauxiliary {words.error(found['auxiliary_error'])}", style="dim")
        text.append(f"\ngradient {words.error(found['gradient_error'])}", style="dim")
    elif candidate["outcome"] == "ok":
        text.append("\nnot compared", style="yellow")
    return text


def _layout(candidate: Mapping[str, Any], won: bool = False) -> Text:
    text = Text(candidate["family"], style="bold green" if won else "bold")
    name = "baseline" if candidate.get("baseline", False) else candidate.get("name")
    if name is not None:
        text.append(f" ({name})", style="cyan")
    return text.append("\n").append(words.layout(candidate["layout"]), style="not bold default dim")


def _stacked(value: str, below: str) -> Text:
    return Text.assemble(value, (f"\n{below}", "dim")) if below else Text(value)


def _plan_caption(headroom: float | None) -> str:
    interval = "below a step time: its interval"
    if headroom is None:
        return interval
    free = format_percent(headroom)
    return f"{interval}; fits: the upper end of the memory interval leaves {free} free"
