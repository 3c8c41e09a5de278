"""How often the faster of two layouts is predicted to be the faster one.

Layouts compare within a group: same model, accelerators, batch and sequence, same software.
"""

import itertools
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from meshfit.validate.error_scores import percentile
from meshfit.validate.figures import Figures
from meshfit.validate.rows import TruthRow
from meshfit.validate.scored import LAYOUT_COLUMNS, MESH_COLUMNS, order_scored

DISTINCT = 1.05
"""Measured speeds closer than this are a tie that nobody has to order."""
TIE = 0.001
"""Predicted speeds closer than this share of each other say nothing: one half."""
NEAR_BEST = 1.02

Guess = Callable[[TruthRow], float | None]
"""The speed a rule gives to a row, in any unit that is one within a group; None: it gives none."""

_SAME_MEASUREMENT = (
    "framework", "framework_ver", "precision", "task", "gpu", "n_gpus", "model",
)  # fmt: skip
_SAME_JOB = ("family", "source", "n_layers", "hidden", "n_heads", "seq_len", "gbs")


@dataclass(frozen=True, kw_only=True)
class OrderScore:
    """Shares of pairs ordered as measured.

    Attributes:
        pairs, groups: that there are.
        pairs_right: over all pairs; groups_right: averaged over groups.
        top1: share of groups whose predicted best is within 2 % of the best.
        mean_regret, p90_regret: 1 - measured speed of the predicted best over that of the best.
    """

    pairs: int
    groups: int
    pairs_right: float = 0.0
    groups_right: float = 0.0
    top1: float = 0.0
    mean_regret: float = 0.0
    p90_regret: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The keys of the tables' scorer."""
        if not self.pairs:
            return {"pairs": 0, "groups": 0}
        document = asdict(self)
        document["top1_within_2_percent"] = document.pop("top1")
        return document


@dataclass(frozen=True, kw_only=True)
class Point:
    """One layout: the median of its measured speeds, and a row that has it."""

    speed: float
    row: TruthRow


def predicted_speed(figures: Mapping[str, Figures]) -> Guess:
    """Tokens per second and accelerator from the predicted step time."""

    def speed(row: TruthRow) -> float | None:
        own = figures.get(row.id)
        if own is None or not own.step_time:
            return None
        tokens = float(row.text("gbs")) * float(row.text("seq_len"))
        return tokens / float(row.text("n_gpus")) / own.step_time

    return speed


def order_score(rows: Iterable[TruthRow], guess: Guess, *, wide: bool) -> OrderScore:
    """The score of a rule; ``wide`` compares beyond printed groups, within one source and job."""
    right, pairs = 0.0, 0
    shares: list[float] = []
    regrets: list[float] = []
    near_best: list[bool] = []
    for points in comparable_groups(rows, wide=wide):
        compared = distinct_pairs(points)
        if not compared:
            continue
        here = sum(share_right(a, b, guess) for a, b in compared)
        right, pairs = right + here, pairs + len(compared)
        shares.append(here / len(compared))
        best = max(point.speed for point in points)
        picked = _picked(points, guess)
        near_best.append(picked >= best / NEAR_BEST)
        regrets.append(1 - picked / best)
    if not pairs:
        return OrderScore(pairs=0, groups=0)
    return OrderScore(
        pairs=pairs,
        groups=len(shares),
        pairs_right=right / pairs,
        groups_right=statistics.mean(shares),
        top1=statistics.mean(near_best),
        mean_regret=statistics.mean(regrets),
        p90_regret=percentile(regrets, 90),
    )


def measured_speed(row: TruthRow) -> tuple[str, float] | None:
    """A measured speed and its kind, the first that the row has."""
    seconds, batch = row.number("step_time_s"), row.number("gbs")
    length, count = row.number("seq_len"), row.number("n_gpus")
    tokens = batch * length / count / seconds if seconds and batch and length and count else None
    kinds = (
        ("tokens", row.number("tokens_s_gpu")),
        ("tokens", tokens),
        (f"tflops {row.text('tflops_kind')}", row.number("tflops_gpu")),
        ("mfu", row.number("mfu_pct")),
    )
    return next(((kind, value) for kind, value in kinds if value), None)


def comparable_groups(rows: Iterable[TruthRow], *, wide: bool) -> list[list[Point]]:
    """Layouts that compare with each other, group by group, repeats as one point."""
    speeds: dict[tuple[str, ...], dict[tuple[str, ...], list[tuple[float, TruthRow]]]]
    speeds = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if not order_scored(row, wide=wide) or (measured := measured_speed(row)) is None:
            continue
        kind, value = measured
        job = tuple(row.text(name) for name in _SAME_JOB) if wide else (row.text("rank_group"),)
        key = (*job, kind, *(row.text(name) for name in _SAME_MEASUREMENT))
        speeds[key][tuple(row.text(name) for name in LAYOUT_COLUMNS)].append((value, row))
    return [
        [
            Point(speed=statistics.median(value for value, _ in same), row=same[0][1])
            for same in layouts.values()
        ]
        for layouts in speeds.values()
    ]


def distinct_pairs(points: Sequence[Point]) -> list[tuple[Point, Point]]:
    """Pairs of a group whose meshes differ and whose measured speeds do."""
    return [
        (a, b)
        for a, b in itertools.combinations(points, 2)
        if max(a.speed, b.speed) / min(a.speed, b.speed) > DISTINCT and _meshes_differ(a.row, b.row)
    ]


def _meshes_differ(a: TruthRow, b: TruthRow) -> bool:
    return any(
        a.text(name) and b.text(name) and a.number(name) != b.number(name) for name in MESH_COLUMNS
    )


def share_right(a: Point, b: Point, guess: Guess) -> float:
    """1 where a rule orders a pair as measured, one half where it says nothing, else 0."""
    of_a, of_b = guess(a.row), guess(b.row)
    if of_a is None or of_b is None:
        return 0.0
    if abs(of_a / of_b - 1) <= TIE:
        return 0.5
    return float((of_a > of_b) == (a.speed > b.speed))


def _picked(points: Sequence[Point], guess: Guess) -> float:
    """Measured speed of the layout that the rule puts first; 0 where it puts none."""
    known = [(point.speed, of_it) for point in points if (of_it := guess(point.row))]
    return max(known, key=lambda pair: pair[1])[0] if known else 0.0
