"""Where profiled steps went: one row a layout, for the terminal and the page."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

from meshfit.report.documents.fit import CandidateDocument, ProfileDocument
from meshfit.report.parts import words
from meshfit.report.parts.cells import KeysText
from meshfit.report.parts.titled import titled_table

TERMS = {
    "compute": "compute",
    "recompute": "recompute",
    "optimizer": "optimizer",
    "bubble": "bubble",
    "input_wait": "input wait",
    "host": "host",
    "core_wait": "core wait",
    "unattributed": "not attributed",
}
"""Key of a term of a profiled step -> what a reader calls it."""

CAPTION = (
    "In ms, the mean over ranks of steps run once more under the recorder, which makes them longer. "
    "Between operations, host: the rank's thread ran (Python, dispatch, DTensor); core wait: it was ready and no "
    "core was free; not attributed: nothing measured explains it. Exposed: communication that no "
    "computation of its rank covers, by collective and mesh axis"
)


def profile_rows(candidates: Iterable[CandidateDocument]) -> list[dict[str, Any]]:
    """Layouts with a profile: their ``family``, ``label``, terms, ``exposed`` and ``stragglers``."""
    return [
        {
            "family": candidate["family"],
            "label": candidate["label"],
            "layout": candidate["layout"],
            "step": profile["time"]["step"],
            "terms": _terms(profile),
            "exposed": candidate["exposed"] or {},
            "stragglers": straggler_words(candidate),
        }
        for candidate in candidates
        if (profile := candidate.get("profile")) is not None
    ]


def _terms(profile: ProfileDocument) -> dict[str, float | None]:
    """Of a document that tells nothing of ``other`` apart, all of it is not attributed."""
    seconds: Mapping[str, Any] = {
        "unattributed": profile["time"].get("other"),
        **profile["time"],
        **profile,
    }
    return {key: seconds.get(key) for key in TERMS}


def profile_table(candidates: Sequence[CandidateDocument]) -> Table:
    """The rows as a table; terms that no layout has are left out."""
    rows = profile_rows(candidates)
    shown = [key for key in TERMS if any(row["terms"][key] for row in rows)]
    table = titled_table("Where a profiled step goes", CAPTION)
    table.add_column("layout", overflow="fold")
    for name in ("step", *(TERMS[key] for key in shown), "exposed"):
        table.add_column(name, justify="right", overflow="fold")
    stragglers = any(row["stragglers"] for row in rows)
    if stragglers:
        table.add_column("stragglers", overflow="fold")
    for row in rows:
        table.add_row(
            KeysText(row["layout"]),
            words.milliseconds(row["step"]),
            *(words.milliseconds(row["terms"][key]) for key in shown),
            exposed_words(row["exposed"]),
            *([row["stragglers"]] if stragglers else []),
        )
    return table


def exposed_words(exposed: Mapping[str, float]) -> str:
    """One line a collective and axis, the longest first."""
    longest = sorted(exposed.items(), key=lambda item: -item[1])
    return "\n".join(f"{name} {words.milliseconds(seconds)}" for name, seconds in longest)


def straggler_words(candidate: CandidateDocument) -> str:
    """Slow ranks with their scores; empty where there is none."""
    scores = {rank["rank"]: rank.get("score") or {} for rank in candidate["ranks"]}
    return "; ".join(
        f"rank {rank} ({_score_words(scores.get(rank, {}))})"
        for rank in candidate.get("stragglers", [])
    )


def _score_words(score: Mapping[str, Any]) -> str:
    names = {"relative": "of the fastest rank's speed", "individual": "of its own best speed"}
    known = [
        f"{score[key]:.2f} {name}" for key, name in names.items() if score.get(key) is not None
    ]
    return ", ".join(known)
