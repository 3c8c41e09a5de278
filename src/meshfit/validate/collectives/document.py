"""What ``meshfit validate collectives --json`` prints."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NotRequired, TypedDict

from meshfit.validate.collectives.predictions import CollectivePrediction
from meshfit.validate.collectives.rows import CollectiveRow
from meshfit.validate.document import TargetDocument
from meshfit.validate.error_scores import percentile

FORMULA, INTERPOLATION = "formula", "interpolation"
MEDIAN_TARGETS = {"interpolation": 0.03, "intra_node": 0.15, "multi_node": 0.25}
BIAS_TARGET = 0.05


class CollectivesDocument(TypedDict):
    """``summary``: by family, of the formula without the system it is asked about, and of
    ``interpolation`` on sizes that were held back. The others take these two apart."""

    file: str
    rows: list[dict[str, Any]]
    summary: dict[str, dict[str, Any]]
    by_system: dict[str, dict[str, dict[str, Any]]]
    by_collective: dict[str, dict[str, dict[str, Any]]]
    by_size: dict[str, dict[str, dict[str, Any]]]
    not_modelled: dict[str, int]
    targets: NotRequired[list[TargetDocument]]
    seconds: NotRequired[float]


def collectives_document(
    file: str, predictions: Sequence[CollectivePrediction], *, with_targets: bool = False
) -> CollectivesDocument:
    """Predicted and measured seconds of every row, and errors by family, system, collective, size."""
    summary = _by(predictions, FORMULA, lambda row: row.family)
    summary |= {INTERPOLATION: _score(predictions, INTERPOLATION)}
    document = CollectivesDocument(
        file=file,
        rows=[_row(predicted) for predicted in predictions],
        summary=summary,
        by_system=_both(predictions, lambda row: row.system),
        by_collective=_both(predictions, lambda row: row.collective),
        by_size=_both(predictions, lambda row: row.size_bytes),
        not_modelled=_reasons(predictions),
    )
    if with_targets:
        document["targets"] = _targets(summary)
    return document


def _row(predicted: CollectivePrediction) -> dict[str, Any]:
    row = predicted.row
    return {
        "id": row.id,
        "predicted": predicted.formula,
        "measured": row.seconds,
        "low": predicted.low,
        "high": predicted.high,
        "reason": predicted.reason,
        "interpolated": predicted.interpolated,
        "family": row.family,
        "system": row.system,
        "collective": row.collective,
        "ranks": row.ranks,
        "nodes": row.nodes,
        "size": row.size_bytes,
    }


def _both(
    predictions: Sequence[CollectivePrediction], key: Callable[[CollectiveRow], Any]
) -> dict[str, dict[str, dict[str, Any]]]:
    return {kind: _by(predictions, kind, key) for kind in (FORMULA, INTERPOLATION)}


def _by(
    predictions: Sequence[CollectivePrediction], kind: str, key: Callable[[CollectiveRow], Any]
) -> dict[str, dict[str, Any]]:
    groups: dict[Any, list[CollectivePrediction]] = defaultdict(list)
    for predicted in predictions:
        groups[key(predicted.row)].append(predicted)
    scores = {str(name): _score(groups[name], kind) for name in sorted(groups)}
    return {name: found for name, found in scores.items() if found["modelled"]}


def _score(predictions: Sequence[CollectivePrediction], kind: str) -> dict[str, Any]:
    """Errors, predicted over measured less one. Runs that agree in all but library version and type
    count once, by the median of their errors."""
    errors: dict[object, list[float]] = defaultdict(list)
    covered = []
    modelled = 0
    for predicted in predictions:
        row = predicted.row
        value = predicted.formula if kind == FORMULA else predicted.interpolated
        if value is None:
            continue
        modelled += 1
        errors[row.case, row.size_bytes].append(value / row.seconds - 1)
        if predicted.low is not None and predicted.high is not None:
            covered.append(predicted.low <= row.seconds <= predicted.high)
    found: dict[str, Any] = {
        "rows": len(predictions),
        "configurations": len(errors),
        "modelled": modelled,
    }
    if not errors:
        return found
    one_each = [statistics.median(values) for values in errors.values()]
    absolute = [abs(error) for error in one_each]
    found |= {
        "median_abs_error": statistics.median(absolute),
        "p90_abs_error": percentile(absolute, 90),
        "max_abs_error": max(absolute),
        "bias": statistics.median(one_each),
    }
    if kind == FORMULA and covered:
        found["interval_coverage"] = sum(covered) / len(covered)
    return found


def _reasons(predictions: Sequence[CollectivePrediction]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for predicted in predictions:
        if predicted.reason is not None:
            counts[predicted.reason] += 1
    return dict(counts)


def _targets(summary: dict[str, dict[str, Any]]) -> list[TargetDocument]:
    found = []
    for name, most in MEDIAN_TARGETS.items():
        median = summary.get(name, {}).get("median_abs_error")
        found.append(_target(f"{name}: median", f"<= {most:.1%}", median, most))
    for name in ("intra_node", "multi_node"):
        bias = summary.get(name, {}).get("bias")
        found.append(_target(f"{name}: bias", f"±{BIAS_TARGET:.1%}", bias, BIAS_TARGET))
    return found


def _target(name: str, bound: str, value: float | None, most: float) -> TargetDocument:
    reached = None if value is None else abs(value) <= most
    return TargetDocument(name=name, bound=bound, value=value, reached=reached, is_count=False)
