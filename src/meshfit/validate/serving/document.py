"""What ``meshfit validate serving --json`` prints."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Literal, NotRequired, TypedDict

from meshfit.serve.time.device import likely_range
from meshfit.validate.document import TargetDocument
from meshfit.validate.error_scores import percentile
from meshfit.validate.serving.layouts import (
    choice_score,
    latency_choices,
    throughput_choices,
    throughput_choices_at_one_load,
)
from meshfit.validate.serving.predictions import ServingPrediction

TARGETS = {"tpot": 0.10, "ttft": 0.23, "regret": 0.05}
"""Medians over aggregated rows; AIConfigurator 0.12 has 14.5 % and 64 % on the same table."""

METRICS: tuple[Literal["tpot", "ttft"], ...] = ("tpot", "ttft")

LOOP = "closed: concurrency requests are in flight, the next sent when one ends"


class ServingDocument(TypedDict):
    """``rows`` has two entries a row of the file, one a ``metric``, in seconds. Errors are predicted over
    measured, less one; a configuration that is there twice counts
    once, by the median of its errors."""

    file: str
    loop: str
    rows: list[dict[str, Any]]
    summary: dict[str, dict[str, Any]]
    by_system: dict[str, dict[str, Any]]
    by_backend: dict[str, dict[str, Any]]
    by_model: dict[str, dict[str, Any]]
    coverage: dict[str, Any]
    layouts: dict[str, dict[str, Any]]
    not_modelled: dict[str, int]
    targets: NotRequired[list[TargetDocument]]
    seconds: NotRequired[float]


def serving_document(
    file: str,
    predictions: Sequence[ServingPrediction],
    *,
    of_any_release: Sequence[ServingPrediction] = (),
    with_targets: bool = False,
) -> ServingDocument:
    """Predicted and measured seconds of every row, their errors, and what choices would have cost.

    Args:
        of_any_release: predictions of the same rows that do not know the engine's release, as a plan
            does not; they are summed up beside the others.
    """
    modelled = _modelled(predictions)
    summary = {"aggregated": _score(modelled)}
    if two_pools := [one for one in predictions if one.row.pools and one.tpot_s is not None]:
        summary["two pools"] = _score(two_pools)
    if of_any_release:
        summary["aggregated, release unknown"] = _score(_modelled(of_any_release))
    document = ServingDocument(
        file=file,
        loop=LOOP,
        rows=[_row(one, metric) for one in predictions for metric in METRICS],
        summary=summary,
        by_system=_by(modelled, lambda one: one.row.system),
        by_backend=_by(modelled, lambda one: one.row.backend),
        by_model=_by(modelled, lambda one: one.row.model),
        coverage=_coverage(predictions, modelled),
        layouts={
            "throughput": choice_score(throughput_choices(modelled)),
            "throughput_at_one_concurrency": choice_score(throughput_choices_at_one_load(modelled)),
            "tpot_at_one_concurrency": choice_score(latency_choices(modelled)),
        },
        not_modelled=dict(Counter(one.reason for one in predictions if one.reason)),
    )
    if with_targets:
        document["targets"] = _targets(document)
    return document


def _modelled(predictions: Sequence[ServingPrediction]) -> list[ServingPrediction]:
    """Aggregated rows."""
    return [one for one in predictions if one.row.aggregated and one.tpot_s is not None]


def _row(one: ServingPrediction, metric: Literal["tpot", "ttft"]) -> dict[str, Any]:
    row = one.row
    predicted = one.tpot_s if metric == "tpot" else one.ttft_s
    low, high = (None, None) if predicted is None else likely_range(metric, predicted)
    return {
        "id": row.id,
        "metric": metric,
        "predicted": predicted,
        "measured": row.tpot_s if metric == "tpot" else row.ttft_s,
        "low": low,
        "high": high,
        "reason": one.reason or None,
        "layout": None if row.layout is None else row.layout.as_json(),
        "concurrency": row.concurrency,
    }


def _by(
    predictions: Sequence[ServingPrediction], key: Callable[[ServingPrediction], str]
) -> dict[str, dict[str, Any]]:
    together: dict[str, list[ServingPrediction]] = defaultdict(list)
    for one in predictions:
        together[key(one)].append(one)
    return {name: _score(together[name]) for name in sorted(together)}


def _score(predictions: Sequence[ServingPrediction]) -> dict[str, Any]:
    errors: dict[tuple[object, ...], list[tuple[float, float]]] = defaultdict(list)
    for one in predictions:
        assert one.tpot_s is not None and one.ttft_s is not None
        pair = (one.tpot_s / one.row.tpot_s - 1, one.ttft_s / one.row.ttft_s - 1)
        errors[one.row.configuration].append(pair)
    score: dict[str, Any] = {"rows": len(predictions), "configurations": len(errors)}
    for index, name in enumerate(METRICS):
        one_each = [statistics.median(pair[index] for pair in pairs) for pairs in errors.values()]
        if not one_each:
            continue
        absolute = [abs(error) for error in one_each]
        score |= {
            f"{name}_median_abs_error": statistics.median(absolute),
            f"{name}_p90_abs_error": percentile(absolute, 90),
            f"{name}_bias": statistics.median(one_each),
            f"{name}_interval_coverage": _covered(one_each, name),
        }
    return score


def _covered(errors: Sequence[float], metric: Literal["tpot", "ttft"]) -> float:
    """Share of measurements inside the interval, the prediction being 1."""
    low, high = likely_range(metric, 1.0)
    return sum(low <= 1 / (1 + error) <= high for error in errors) / len(errors)


def _coverage(
    predictions: Sequence[ServingPrediction], modelled: Sequence[ServingPrediction]
) -> dict[str, Any]:
    aggregated = sum(one.row.aggregated for one in predictions)
    return {
        "rows": len(predictions),
        "aggregated": aggregated,
        "modelled": len(modelled),
        "share_of_aggregated": len(modelled) / aggregated if aggregated else None,
    }


def _targets(document: ServingDocument) -> list[TargetDocument]:
    summary = document["summary"]["aggregated"]
    values = {
        "tpot": summary.get("tpot_median_abs_error"),
        "ttft": summary.get("ttft_median_abs_error"),
        "regret": document["layouts"]["throughput"]["median_regret"],
    }
    names = {
        "tpot": "time per token, median error",
        "ttft": "time to first token, median error",
        "regret": "regret of the chosen layout, median",
    }
    return [
        TargetDocument(
            name=names[key],
            bound=f"at most {bound:.0%}",
            value=values[key],
            reached=None if values[key] is None else values[key] <= bound,
            is_count=False,
        )
        for key, bound in TARGETS.items()
    ]
