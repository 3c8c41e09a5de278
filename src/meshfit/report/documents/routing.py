"""What routers of a mixture of experts did under one layout, for the fit document."""

import math
import statistics
from collections.abc import Sequence
from typing import TypedDict

from meshfit.record.schema import RoutingReport, RunResult


class RoutingDocument(TypedDict):
    """Of one layout's last repeat. Lists by step hold every step, warm-up included; the other values
    are medians over timed steps.

    Attributes:
        tokens_per_expert: copies of tokens sent to each expert, all layers together, by step.
        tokens_per_layer: the same of all steps together, by layer.
        fullest_rank: copies for all experts of one expert-parallel rank over an even share, what
            predictions assume as ``expert_imbalance``; of all steps; None without expert parallelism.
        entropy: in nats; ``entropy_fraction`` of the logarithm of the number of experts.
        dropped, padded: shares of all copies that found their expert full, and of all places that
            were sent empty.
        dispatch, combine: seconds of a step, the mean over ranks; None without expert parallelism.
        loss_by_route: mean loss of tokens by the expert that weighs most in the last layer that has
            experts, by step; None where there is no such token.
        auxiliary_loss: by step, not scaled; its means are over the ``auxiliary_scope``.
    """

    layers: list[int]
    tokens_per_expert: list[list[int]]
    tokens_per_layer: list[list[int]]
    imbalance: float
    imbalance_by_step: list[float]
    fullest_rank: float | None
    entropy: float
    entropy_by_step: list[float]
    entropy_fraction: float
    dropped: float
    padded: float
    dispatch: float | None
    combine: float | None
    loss_by_route: list[list[float | None]]
    auxiliary_loss: list[float]
    auxiliary_scope: str | None


def routing_of(results: Sequence[RunResult], warmup_steps: int, ep: int) -> RoutingDocument | None:
    """What the routers of one layout did; None where it has none, or nothing ran."""
    if not results or results[-1].routing is None:
        return None
    result, report = results[-1], results[-1].routing
    entropy = statistics.median(report.entropy[warmup_steps:])
    dropped, padded = _shares(report, warmup_steps)
    return {
        "layers": list(report.layers),
        "tokens_per_expert": [list(step) for step in report.tokens_per_expert],
        "tokens_per_layer": [list(layer) for layer in report.tokens_per_layer],
        "imbalance": statistics.median(report.imbalance[warmup_steps:]),
        "imbalance_by_step": list(report.imbalance),
        "fullest_rank": _fullest_rank(report, ep) if ep > 1 else None,
        "entropy": entropy,
        "entropy_by_step": list(report.entropy),
        "entropy_fraction": entropy / math.log(len(report.tokens_per_expert[0])),
        "dropped": statistics.median(dropped),
        "padded": statistics.median(padded),
        "dispatch": _seconds([rank.dispatch_s for rank in result.ranks], warmup_steps),
        "combine": _seconds([rank.combine_s for rank in result.ranks], warmup_steps),
        "loss_by_route": [list(step) for step in report.loss_by_route],
        "auxiliary_loss": list(report.auxiliary_loss),
        "auxiliary_scope": report.auxiliary_scope,
    }


def _fullest_rank(report: RoutingReport, ep: int) -> float:
    """Ranks hold experts in order, as many each; the layers of a rank count together."""
    of_experts: list[int] = [sum(layers) for layers in zip(*report.tokens_per_layer, strict=True)]
    each = len(of_experts) // ep
    of_ranks = [sum(of_experts[first : first + each]) for first in range(0, len(of_experts), each)]
    return max(of_ranks) * ep / sum(of_ranks)


def _shares(report: RoutingReport, warmup_steps: int) -> tuple[list[float], list[float]]:
    """Of timed steps, the share of copies that were dropped, and of places that were empty."""
    steps = range(warmup_steps, len(report.dropped))
    copies = [sum(step) for step in report.tokens_per_expert]
    places = [copies[i] - report.dropped[i] + report.padded[i] for i in steps]
    dropped = [report.dropped[i] / copies[i] for i in steps]
    padded = [report.padded[i] / count for i, count in zip(steps, places, strict=True)]
    return dropped, padded


def _seconds(by_rank: Sequence[Sequence[float]], warmup_steps: int) -> float | None:
    timed = [statistics.median(steps[warmup_steps:]) for steps in by_rank if steps]
    return statistics.fmean(timed) if timed else None
