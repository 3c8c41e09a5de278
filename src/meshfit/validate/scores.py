"""All scores of one set of predictions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshfit.validate.error_scores import (
    ErrorScore,
    Sample,
    by_shelf,
    memory_samples,
    time_samples,
)
from meshfit.validate.figures import Figures
from meshfit.validate.fit_scores import FitScore, fit_score
from meshfit.validate.order_scores import OrderScore, order_score, predicted_speed
from meshfit.validate.rows import TruthRow

NO_PREDICTION = "no prediction"


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What the tables' scorer prints, and the samples behind it."""

    memory_samples: Sequence[Sample]
    time_samples: Sequence[Sample]
    memory: Mapping[str, ErrorScore]
    time: Mapping[str, ErrorScore]
    fits: FitScore
    order: OrderScore
    order_wide: OrderScore
    not_modelled: Mapping[str, int]

    def as_json(self) -> dict[str, Any]:
        """The same keys and figures as the tables' scorer."""
        return {
            "memory": {name: score.as_json() for name, score in self.memory.items()},
            "time": {name: score.as_json() for name, score in self.time.items()},
            "fits": self.fits.as_json(),
            "order": self.order.as_json(),
            "order_wide": self.order_wide.as_json(),
            "not_modelled": dict(self.not_modelled),
        }


def score_figures(rows: Sequence[TruthRow], figures: Mapping[str, Figures]) -> Scores:
    """Scores of predicted figures against the rows."""
    memory, time = memory_samples(rows, figures), time_samples(rows, figures)
    speed = predicted_speed(figures)
    return Scores(
        memory_samples=memory,
        time_samples=time,
        memory=by_shelf(memory),
        time=by_shelf(time),
        fits=fit_score(rows, figures),
        order=order_score(rows, speed, wide=False),
        order_wide=order_score(rows, speed, wide=True),
        not_modelled=_reasons(rows, figures),
    )


def _reasons(rows: Sequence[TruthRow], figures: Mapping[str, Figures]) -> dict[str, int]:
    reasons: Counter[str] = Counter()
    for row in rows:
        own = figures.get(row.id)
        if own is None or not own.is_modelled:
            reasons[(own.reason if own else None) or NO_PREDICTION] += 1
    return dict(reasons)
