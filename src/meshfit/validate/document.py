"""What ``meshfit validate training --json`` prints."""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from meshfit.validate.baselines import (
    best_naive_order,
    constant_fraction_figures,
    textbook_figures,
)
from meshfit.validate.error_scores import ErrorScore
from meshfit.validate.figures import figures_by_id
from meshfit.validate.predictions import RowPrediction
from meshfit.validate.rows import TruthRow
from meshfit.validate.scores import score_figures
from meshfit.validate.targets import Target, targets


class BaselinesDocument(TypedDict):
    """Scores of plain rules; ``order`` and ``order_wide`` carry the best one's name as ``rule``."""

    memory: dict[str, dict[str, Any]]
    time: dict[str, dict[str, Any]]
    fits: dict[str, int]
    order: dict[str, Any]
    order_wide: dict[str, Any]


class TargetDocument(TypedDict):
    name: str
    bound: str
    value: float | None
    reached: bool | None
    is_count: bool


class ValidationDocument(TypedDict):
    """``rows`` has one entry a row of the file, in order, as the tables' scorer reads them."""

    file: str
    rows: list[dict[str, Any]]
    scores: dict[str, Any]
    baselines: BaselinesDocument
    left_out: NotRequired[dict[str, dict[str, Any]]]
    targets: NotRequired[list[TargetDocument]]
    seconds: NotRequired[float]


def validation_document(
    file: str,
    rows: Sequence[TruthRow],
    predictions: Sequence[RowPrediction],
    *,
    left_out: Mapping[str, ErrorScore] | None = None,
    with_targets: bool = False,
) -> ValidationDocument:
    """Predicted figures of every row, their scores, and those of plain rules.

    Args:
        left_out: family -> its time score with constants that were fitted without it.
        with_targets: hold the scores against the project's targets.
    """
    figures = figures_by_id(predictions)
    scores = score_figures(rows, figures)
    document = ValidationDocument(
        file=file,
        rows=[figures[row.id].as_json() for row in rows],
        scores=scores.as_json(),
        baselines=_baselines(rows, predictions),
    )
    if left_out is not None:
        document["left_out"] = {name: score.as_json() for name, score in left_out.items()}
    if with_targets:
        document["targets"] = [_target(target) for target in targets(scores, left_out)]
    return document


def missed_targets(document: ValidationDocument) -> list[str]:
    """Names of the targets that are not reached."""
    return [target["name"] for target in document.get("targets", ()) if not target["reached"]]


def _baselines(rows: Sequence[TruthRow], predictions: Sequence[RowPrediction]) -> BaselinesDocument:
    textbook = score_figures(rows, textbook_figures(predictions))
    fraction = score_figures(rows, constant_fraction_figures(predictions))
    return BaselinesDocument(
        memory=textbook.as_json()["memory"],
        time=fraction.as_json()["time"],
        fits=textbook.fits.as_json(),
        order=_naive(rows, wide=False),
        order_wide=_naive(rows, wide=True),
    )


def _naive(rows: Sequence[TruthRow], *, wide: bool) -> dict[str, Any]:
    best = best_naive_order(rows, wide=wide)
    return {"rule": best.rule, **best.score.as_json()}


def _target(target: Target) -> TargetDocument:
    return TargetDocument(
        name=target.name,
        bound=target.bound,
        value=target.value,
        reached=target.reached,
        is_count=target.is_count,
    )
