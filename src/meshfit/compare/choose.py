"""One winner among measured layouts, ties called ties, and why each of the others lost."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from meshfit.compare.candidate import MeasuredCandidate
from meshfit.compare.causes import Cause, binds, cause_of, loses
from meshfit.units import format_bytes, format_duration, format_percent


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The winner (None when no layout qualifies), the layouts it ties with, and the reasons.

    ``reason`` is for the whole comparison; ``reasons`` has one sentence a layout, by label, ``causes``
    the term behind it, where one is known: what binds the winner, what another loses most in.
    """

    winner: MeasuredCandidate | None
    tied: tuple[MeasuredCandidate, ...]
    reason: str
    reasons: dict[str, str]
    causes: dict[str, Cause] = field(default_factory=dict)


def choose(
    candidates: Sequence[MeasuredCandidate], *, capacity_bytes: int, headroom_fraction: float
) -> Choice:
    """The layout with the best measured useful throughput among those proven and within memory.

    A layout qualifies when every launch ended well, its parity holds and its measured peak leaves
    ``headroom_fraction`` of ``capacity_bytes`` free. The fastest of them wins; layouts whose median
    step cannot be told from its own are named as tied with it.
    """
    allowed_bytes = (1 - headroom_fraction) * capacity_bytes
    reasons = {
        c.layout.label: _disqualified(c, allowed_bytes, headroom_fraction) for c in candidates
    }
    qualified = [c for c in candidates if not reasons[c.layout.label]]
    if not qualified:
        return Choice(winner=None, tied=(), reason=_no_winner(candidates, reasons), reasons=reasons)
    ranked = sorted(qualified, key=_median)
    winner, *behind = ranked
    slowest_tie_s = _median(winner) + winner.step_noise_s
    tied = tuple(c for c in behind if _median(c) - c.step_noise_s <= slowest_tie_s)
    causes: dict[str, Cause] = {}
    for candidate in ranked:
        label, cause = candidate.layout.label, cause_of(candidate, winner)
        if cause is not None and candidate not in tied:
            causes[label] = cause
        reasons[label] = _standing(candidate, winner, tied, causes.get(label))
    return Choice(
        winner=winner,
        tied=tied,
        reason=_reason(winner, tied, ranked, reasons, causes.get(winner.layout.label)),
        reasons=reasons,
        causes=causes,
    )


def _disqualified(candidate: MeasuredCandidate, allowed_bytes: float, headroom: float) -> str:
    """Why a layout cannot win, empty when it can."""
    if candidate.outcome != "ok":
        why = candidate.failure.message if candidate.failure else ""
        if candidate.outcome == "parity_failed" and candidate.parity is not None:
            why = candidate.parity.message
        return f"{candidate.outcome.replace('_', ' ')}: {why}".removesuffix(": ")
    if candidate.parity is None:
        return "its loss was not compared with a reference"
    if not candidate.parity.ok:
        return f"parity failed: {candidate.parity.message}"
    if not candidate.step_s or candidate.memory is None:
        return "no step was timed"
    if _peak(candidate) > allowed_bytes:
        return (
            f"its peak of {format_bytes(_peak(candidate))} leaves less than the asked "
            f"{format_percent(headroom)} headroom (at most {format_bytes(allowed_bytes)})"
        )
    return ""


def _standing(
    candidate: MeasuredCandidate,
    winner: MeasuredCandidate,
    tied: tuple[MeasuredCandidate, ...],
    cause: Cause | None,
) -> str:
    if candidate is winner:
        return "winner, by less than the noise" if tied else "winner"
    longer = _longer(_median(candidate) / _median(winner))
    if candidate in tied:
        return f"tied with the winner, within noise: {longer}"
    return f"{longer}; {loses(cause)}" if cause is not None else longer


def _longer(ratio: float) -> str:
    """``10.4% slower a step than the winner``; beyond twice as long, how many times."""
    if ratio <= 2:
        return f"{ratio - 1:.1%} slower a step than the winner"
    return f"{ratio:.1f} times as long a step as the winner"


def _reason(
    winner: MeasuredCandidate,
    tied: tuple[MeasuredCandidate, ...],
    ranked: Sequence[MeasuredCandidate],
    reasons: dict[str, str],
    cause: Cause | None,
) -> str:
    speed = (
        f"{winner.layout.label} has the best measured useful throughput: "
        f"{winner.tokens_per_s:,.0f} tokens/s ({format_duration(_median(winner))} a step)"
    )
    if tied:
        smallest = min((winner, *tied), key=_peak)
        speed += (
            f"; inside the noise it ties with {', '.join(c.layout.label for c in tied)}. Of these, "
            f"{smallest.layout.label} has the lowest memory peak ({format_bytes(_peak(smallest))})"
        )
    binding = f" {binds(cause)}." if cause is not None else ""
    second = next((c for c in ranked if c is not winner and c not in tied), None)
    lost = ""
    if second is not None:
        lost = f" {second.layout.label} comes next, {reasons[second.layout.label]}."
    return f"{speed}.{binding}{lost}"


def _no_winner(candidates: Sequence[MeasuredCandidate], reasons: dict[str, str]) -> str:
    if not candidates:
        return "no layout was run"
    return "no layout qualifies: " + "; ".join(
        f"{c.layout.label}: {reasons[c.layout.label]}" for c in candidates
    )


def _median(candidate: MeasuredCandidate) -> float:
    assert candidate.step_time_s is not None
    return candidate.step_time_s


def _peak(candidate: MeasuredCandidate) -> int:
    assert candidate.memory is not None
    return candidate.memory.total
