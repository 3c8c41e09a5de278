"""Plain rules that a model has to beat: each is scored like a prediction.

They see the same jobs, so that a difference is the rule's and not the reading's.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from meshfit.validate.figures import Figures
from meshfit.validate.order_scores import Guess, OrderScore, order_score
from meshfit.validate.predictions import FITS_FRACTION, RowPrediction
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import TruthRow
from meshfit.validate.scored import time_scored
from meshfit.workload.counts import total_parameters, training_flops_per_token

STATE_BYTES = (2, 2, 12)
"""Of a parameter: 16-bit weight, 16-bit gradient, fp32 weight with two moments (1910.02054, section
3.1)."""

ORDER_RULES: Mapping[str, Mapping[str, float]] = {
    "least tp, then least pp": {"tp": 10.0, "pp": 0.1},
    "least pp, then least tp": {"pp": 10.0, "tp": 0.1},
    "least tp x pp": {"tp_pp": 1.0},
    "least tp x pp x cp": {"tp_pp_cp": 1.0},
    "least tp": {"tp": 1.0},
    "least pp": {"pp": 1.0},
    "most shards": {"dp_shard": -1.0},
    "least shards": {"dp_shard": 1.0},
}
"""Rule -> weights of the degrees it wants to be small, the first before the others."""


@dataclass(frozen=True, kw_only=True)
class NaiveOrder:
    """The rule that orders most pairs of a file, and how many."""

    rule: str
    score: OrderScore


def textbook_figures(predictions: Iterable[RowPrediction]) -> Mapping[str, Figures]:
    """Memory by the formulas of 1910.02054 (states) and 2205.05198 (activations).

    One figure stands for allocated, reserved and device memory alike, as the textbook has no
    allocator.
    """
    return {
        predicted.row.id: _textbook(predicted.job)
        for predicted in predictions
        if predicted.job is not None
    }


def constant_fraction_figures(predictions: Sequence[RowPrediction]) -> Mapping[str, Figures]:
    """Step time at one fraction of peak for all rows: the median of what they measured.

    The fraction is chosen on the rows that are scored, which flatters this rule.
    """
    ideal = {
        predicted.row.id: _ideal_s(predicted.job)
        for predicted in predictions
        if predicted.job is not None
    }
    fractions = [
        ideal[predicted.row.id] / float(predicted.row.text("time_s"))
        for predicted in predictions
        if predicted.row.id in ideal and time_scored(predicted.row)
    ]
    if not fractions:
        return {}
    fraction = statistics.median(fractions)
    return {name: Figures(id=name, step_time=seconds / fraction) for name, seconds in ideal.items()}


def best_naive_order(rows: Sequence[TruthRow], *, wide: bool) -> NaiveOrder:
    """The rule of ``ORDER_RULES`` with most pairs right."""
    scored = [
        NaiveOrder(rule=name, score=order_score(rows, _rule(weights), wide=wide))
        for name, weights in ORDER_RULES.items()
    ]
    return max(scored, key=lambda naive: naive.score.pairs_right)


def _rule(weights: Mapping[str, float]) -> Guess:
    def guess(row: TruthRow) -> float:
        tp, pp, cp = (row.number(name) or 1.0 for name in ("tp", "pp", "cp"))
        degrees = {
            "tp": tp,
            "pp": pp,
            "tp_pp": tp * pp,
            "tp_pp_cp": tp * pp * cp,
            "dp_shard": row.number("dp_shard") or 1.0,
        }
        # An exponential keeps the order and never calls two different degrees a tie.
        wanted = sum(weight * degrees[name] for name, weight in weights.items())
        return math.exp(-min(700.0, max(-700.0, wanted)))

    return guess


def _textbook(job: RowJob) -> Figures:
    layout = job.layout
    parameters = total_parameters(job.model) / (layout.tp * layout.pp)
    shards = layout.dp_shard * layout.cp
    divided = (layout.zero_stage >= 3, layout.zero_stage >= 2, layout.zero_stage >= 1)
    states = sum(
        parameters * size / (shards if is_divided else 1)
        for size, is_divided in zip(STATE_BYTES, divided, strict=True)
    )
    total = states + _activation_bytes(job)
    capacity = job.topology.accelerator.memory_bytes
    fits = total <= FITS_FRACTION * capacity
    return Figures(
        id=job.row.id,
        allocated=total,
        reserved=total,
        device=total,
        verdict="fits" if fits else "tight" if total <= capacity else "does_not_fit",
    )


def _activation_bytes(job: RowJob) -> float:
    """``s b h (34 + 5 a s / h) / t`` a layer with sequence parallelism, ``10 + 24 / t`` without;
    34 where core attention is recomputed or fused, 2 under full recomputation; as many layers as
    the model has, since a first stage holds as many micro-batches as there are stages."""
    layout, model = job.layout, job.model
    hidden, heads = model.hidden_size, model.num_attention_heads or 1
    tokens = layout.micro_batch_size * job.training.sequence_length / layout.cp
    split = layout.tp if layout.sp else 1
    scores = 0.0
    if job.training.runtime.attention == "unfused" and layout.recompute == "none":
        scores = 5 * heads * job.training.sequence_length / hidden / layout.tp
    kept = 10 / split + 24 / layout.tp + scores
    if layout.recompute == "full":
        kept = 2 / split
    held = min(layout.pp, layout.num_micro_batches(job.training.global_batch_size) or 1)
    return tokens * hidden * kept * model.num_hidden_layers * held / layout.pp


def _ideal_s(job: RowJob) -> float:
    """Seconds at the dense peak: 6 FLOPs a parameter and token with attention, a third more under
    full recomputation."""
    training = job.training
    flops = training_flops_per_token(job.model, training.sequence_length)
    flops *= training.tokens_per_step * (4 / 3 if job.layout.recompute == "full" else 1)
    peaks = job.topology.accelerator.peak_flops_per_s
    peak = peaks.get(training.precision.matmul) or max(peaks.values())
    return flops / peak / job.layout.world_size
