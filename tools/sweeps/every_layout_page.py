"""Sweeps of every legal layout as a page: did the shortlist hold the best, and what was lost."""

from collections.abc import Sequence
from dataclasses import dataclass

from meshfit.units import format_duration, format_percent
from meshfit.validate.serving.layouts import CLEAR_RATIO

from .regret import ShortlistScore


@dataclass(frozen=True, kw_only=True)
class SweepShown:
    """One sweep: what is said of it, and its score under the shortlist of each name."""

    job: str
    conditions: str
    failed: Sequence[str]
    scores: dict[str, ShortlistScore]


def exhaustive_markdown(sweeps: Sequence[SweepShown]) -> str:
    """One table over all sweeps, the totals, then what each sweep ran under."""
    parts = [_table(sweeps), *_totals(sweeps), *(_sweep(one) for one in sweeps)]
    return "\n\n".join(parts) + "\n"


_COLUMNS = (
    "job",
    "layouts",
    "shortlist",
    "fastest measured",
    "its place by prediction",
    "held it",
    "held it or a tie",
    "held it, by repeat",
    "regret of the first by prediction",
    "regret of the shortlist",
    "pairs in order",
)


def _table(sweeps: Sequence[SweepShown]) -> str:
    rows = [_cells(one.job, name, score) for one in sweeps for name, score in one.scores.items()]
    lines = [_COLUMNS, ("---",) * len(_COLUMNS), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(job: str, name: str, score: ShortlistScore) -> tuple[str, ...]:
    return (
        job,
        str(score.layouts),
        name,
        f"`{score.best}`, {format_duration(score.best_s)}",
        str(score.place_of_best),
        _yes(score.holds_best),
        _yes(score.holds_tied),
        f"{score.repeats_held} of {score.repeats}",
        format_percent(score.chosen_regret),
        format_percent(score.shortlist_regret),
        "-" if score.pairs_right is None else format_percent(score.pairs_right),
    )


def _totals(sweeps: Sequence[SweepShown]) -> list[str]:
    names = list(dict.fromkeys(name for one in sweeps for name in one.scores))
    return [
        _total(name, [one.scores[name] for one in sweeps if name in one.scores]) for name in names
    ]


def _total(name: str, scores: Sequence[ShortlistScore]) -> str:
    count = len(scores)
    random_holds = sum(score.random_holds_best for score in scores) / count
    random_regret = sum(score.random_regret for score in scores) / count
    return (
        f"Shortlist {name}: held the fastest layout in {sum(s.holds_best for s in scores)} of "
        f"{count} sweeps, it or one that cannot be told from it in "
        f"{sum(s.holds_tied for s in scores)}; mean regret "
        f"{format_percent(sum(s.shortlist_regret for s in scores) / count)}. As many layouts drawn "
        f"at random hold it with a chance of {format_percent(random_holds)} and have a mean regret "
        f"of {format_percent(random_regret)}."
    )


def _sweep(one: SweepShown) -> str:
    lines = [f"### {one.job}", "", one.conditions]
    for name, score in one.scores.items():
        lines += ["", f"Shortlist {name}: {', '.join(f'`{label}`' for label in score.shortlist)}."]
    first = next(iter(one.scores.values()))
    lines += [
        "",
        f"First by prediction: `{first.chosen}`. Measured as fast as the fastest, within noise: "
        f"{first.tied}. Pairs count where steps differ by {CLEAR_RATIO - 1:.0%} or more. Predicted steps err by "
        f"{format_percent(first.errors['median'])} in the median, {format_percent(first.errors['p90'])} at the "
        f"90th percentile, with a bias of {first.errors['bias']:+.1%}.",
    ]
    if one.failed:
        lines += ["", f"Left out, as their runs did not end well: {', '.join(one.failed)}."]
    return "\n".join(lines)


def _yes(held: bool) -> str:
    return "yes" if held else "no"
