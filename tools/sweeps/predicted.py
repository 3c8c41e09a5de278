"""How right predictions of steps were, of layouts and placements that were measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

NEAR = 0.20
"""A prediction within this share of what was measured is near it."""
CLEARLY_APART = 1.15
"""Of two steps whose ratio is less, the order is not judged."""


@dataclass(frozen=True, kw_only=True)
class PredictedStep:
    """One layout with its ranks laid in one order: seconds of a step.

    Attributes:
        rank_order: axes of more than one rank, the outermost first.
        levels: axis -> the innermost level that holds each of its groups.
        predicted_s: before it ran; exposed_s: of that, communication that nothing hides.
        measured_s: median of the timed steps.
    """

    label: str
    rank_order: tuple[str, ...]
    levels: dict[str, str]
    predicted_s: float
    exposed_s: float
    measured_s: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted_s / self.measured_s - 1

    @property
    def is_near(self) -> bool:
        return abs(self.error) <= NEAR

    @property
    def is_network_bound(self) -> bool:
        """Whether half of the predicted step or more is communication."""
        return self.exposed_s >= self.predicted_s / 2


def wrong_pairs(steps: Sequence[PredictedStep]) -> list[tuple[PredictedStep, PredictedStep]]:
    """Pairs, the one measured faster first, that are clearly apart and predicted the other way."""
    by_time = sorted(steps, key=lambda one: one.measured_s)
    return [
        (fast, slow)
        for fast, slow in combinations(by_time, 2)
        if slow.measured_s >= CLEARLY_APART * fast.measured_s
        and slow.predicted_s <= fast.predicted_s
    ]


def pairs_apart(steps: Sequence[PredictedStep]) -> int:
    """Pairs whose order is judged."""
    return sum(
        max(a.measured_s, b.measured_s) >= CLEARLY_APART * min(a.measured_s, b.measured_s)
        for a, b in combinations(steps, 2)
    )
