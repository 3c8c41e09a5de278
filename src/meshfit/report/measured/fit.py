"""What ``fit`` and ``run`` measured, for the terminal: the winner, its reason, every candidate."""

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from meshfit.report.documents.fit import CandidateDocument, FitDocument
from meshfit.report.measured.profiles import profile_table
from meshfit.report.measured.routing import routing_table
from meshfit.report.parts import words
from meshfit.report.parts.cells import layout_cell, stacked_cell
from meshfit.report.parts.titled import titled_table


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
            layout_cell(candidate, won=won),
            _outcome(candidate),
            stacked_cell(
                words.duration(candidate.get("step_time")),
                words.duration_spread(candidate.get("step_time_spread")),
            ),
            stacked_cell(
                words.rate(candidate.get("tokens_per_s")),
                words.rate_spread(candidate.get("tokens_per_s_spread")),
            ),
            stacked_cell(
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
