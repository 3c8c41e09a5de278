"""Which of the layouts that ran is the cheapest that meets the targets."""

from collections.abc import Sequence
from dataclasses import dataclass

from meshfit.record.serving import ServingRow


@dataclass(frozen=True, kw_only=True)
class ServingChoice:
    """The winner, None where none meets the targets, and why, in words."""

    winner: ServingRow | None
    reason: str


def choose_layout(rows: Sequence[ServingRow]) -> ServingChoice:
    """Fewest accelerators first, then the shortest median request end to end."""
    meeting = [row for row in rows if row.outcome == "ok" and not _missed(row)]
    if not meeting:
        return ServingChoice(winner=None, reason=_why_none(rows))
    winner = min(meeting, key=lambda row: (row.accelerators, _median_e2e_s(row)))
    others = [row for row in meeting if row.accelerators == winner.accelerators and row != winner]
    tie = f"; of {len(others) + 1} that take as many it is the fastest" if others else ""
    return ServingChoice(
        winner=winner,
        reason=f"{winner.label} takes {winner.accelerators} accelerator"
        f"{'s' if winner.accelerators > 1 else ''}, the fewest of {len(meeting)} layouts that meet all "
        f"targets with the baseline's output{tie}",
    )


def _missed(row: ServingRow) -> dict[str, float]:
    missed: dict[str, float] = row.bench["measured"]["missed"] if row.bench else {}
    return missed


def _median_e2e_s(row: ServingRow) -> float:
    return float(row.bench["measured"]["latencies"]["e2e"]["p50"]) if row.bench else 0.0


def _why_none(rows: Sequence[ServingRow]) -> str:
    each = [f"{row.label}: {row.failure or 'misses ' + ', '.join(_missed(row))}" for row in rows]
    return (
        "none of the layouts meets all targets with the baseline's output (" + "; ".join(each) + ")"
    )
