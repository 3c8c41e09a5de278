"""Scaling: how much of its share of throughput each point keeps, and whether points may be compared.

Strong scaling keeps the global batch and the sequence, so the work per rank shrinks; weak scaling
keeps the work per rank, so the batch grows. Either way the denominator is the baseline's tokens/s
per rank times the point's ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from meshfit.units import format_percent

ScalingKind = Literal["strong", "weak"]


@dataclass(frozen=True, kw_only=True)
class ScalingPoint:
    """One measured number of ranks.

    Attributes:
        label: of the layout.
        tokens_per_s: useful, of all ranks; None where the run failed.
        global_batch: sequences a step.
        conditions: what must be the same at every point, by name: hardware, how ranks share it,
            model, precision, the layout's other axes, and what the kind of scaling keeps.
    """

    ranks: int
    label: str
    tokens_per_s: float | None
    step_time_s: float | None
    global_batch: int
    sequence_length: int
    hardware: str
    conditions: Mapping[str, Any]
    outcome: str = "ok"


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """One point against the baseline.

    Attributes:
        denominator_tokens_per_s: what it would reach at 100 %.
        efficiency: None where there is none to give; ``refused`` says why.
        differing: conditions that differ from the baseline's, in words.
    """

    point: ScalingPoint
    baseline_ranks: int
    denominator_tokens_per_s: float | None
    efficiency: float | None
    differing: tuple[str, ...] = ()
    refused: str = ""


def scaling(points: Sequence[ScalingPoint]) -> list[Scaled]:
    """Every point against the one with the fewest ranks that ran, in the order of ranks.

    More than 100 % between points that differ in anything but ranks is refused: it says that the
    baseline was held back, not that the larger one scales. Between equal ones it stands (caches).
    """
    ordered = sorted(points, key=lambda point: point.ranks)
    baseline = next((point for point in ordered if point.tokens_per_s), None)
    return [_against(point, baseline) for point in ordered]


def _against(point: ScalingPoint, baseline: ScalingPoint | None) -> Scaled:
    if baseline is None or baseline.tokens_per_s is None:
        return Scaled(point=point, baseline_ranks=point.ranks, denominator_tokens_per_s=None,
                      efficiency=None, refused="no point ran")  # fmt: skip
    denominator = baseline.tokens_per_s / baseline.ranks * point.ranks
    differing = _differing(point, baseline)
    efficiency = None if point.tokens_per_s is None else point.tokens_per_s / denominator
    refused = ""
    if efficiency is None:
        refused = f"it did not run ({point.outcome.replace('_', ' ')})"
    elif efficiency > 1 and differing:
        refused = f"{format_percent(efficiency)} of a baseline that is not its equal: {'; '.join(differing)}"
        efficiency = None
    return Scaled(
        point=point,
        baseline_ranks=baseline.ranks,
        denominator_tokens_per_s=denominator,
        efficiency=efficiency,
        differing=differing,
        refused=refused,
    )


def _differing(point: ScalingPoint, baseline: ScalingPoint) -> tuple[str, ...]:
    keys = dict.fromkeys([*baseline.conditions, *point.conditions])
    return tuple(
        f"{key} {baseline.conditions.get(key)} -> {point.conditions.get(key)}"
        for key in keys
        if baseline.conditions.get(key) != point.conditions.get(key)
    )
