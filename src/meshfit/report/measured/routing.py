"""Where tokens of a mixture of experts go: one row a layout, for the terminal and the page."""

from collections.abc import Iterable
from typing import Any

from rich.table import Table

from meshfit.report.documents.fit import CandidateDocument
from meshfit.report.parts import words
from meshfit.report.parts.cells import KeysText
from meshfit.report.parts.titled import titled_table
from meshfit.units import format_percent

CAPTION = (
    "medians over timed steps; imbalance: copies of tokens for the fullest expert over the mean, of "
    "the worst layer; fullest rank: those for all experts of a rank over an even share, which "
    "predictions take to be assume.expert_imbalance (1); entropy: of a router's scores for a token, as a share of that without a "
    "preference; dispatch, combine: seconds a step of all-to-all around experts, the mean over ranks, "
    "waiting for others included"
)


def routing_rows(candidates: Iterable[CandidateDocument]) -> list[dict[str, Any]]:
    """Layouts whose routers were watched, with what a table says of them."""
    return [
        {
            "family": candidate["family"],
            "layout": candidate["layout"],
            **routing,
            "tokens": [
                round(sum(e) / len(e)) for e in zip(*routing["tokens_per_expert"], strict=True)
            ],
            "losses": routing["loss_by_route"][-1],
        }
        for candidate in candidates
        if (routing := candidate.get("routing")) is not None
    ]


def routing_table(candidates: Iterable[CandidateDocument]) -> Table:
    """The rows as a table."""
    table = titled_table("Where tokens go", CAPTION)
    table.add_column("layout", overflow="fold")
    for name in (
        "imbalance",
        "fullest rank",
        "entropy",
        "dropped",
        "padded",
        "dispatch",
        "combine",
    ):
        table.add_column(name, justify="right")
    for row in routing_rows(candidates):
        table.add_row(
            KeysText(row["layout"]),
            f"{row['imbalance']:.2f}",
            words.ABSENT if row["fullest_rank"] is None else f"{row['fullest_rank']:.2f}",
            format_percent(row["entropy_fraction"]),
            format_percent(row["dropped"]),
            format_percent(row["padded"]),
            words.duration(row["dispatch"]),
            words.duration(row["combine"]),
        )
    return table
