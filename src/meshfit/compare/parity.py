"""Whether a layout computes what the reference computes, and if not, what most likely differs.

Judged are the first steps only: rounding grows from step to step, so that right implementations
drift apart later (5e-2 in the loss after 20 steps of AdamW at a learning rate of 1e-2).
"""

import math
from dataclasses import replace

from meshfit.compare.diagnosis import Comparison, Tolerance, why_different, why_incomparable
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.schema import Parity, ParityKind, ReplayedSteps, RunResult
from meshfit.workload.training import PrecisionName, TrainingSpec

JUDGED_STEPS = 5


TOLERANCES: dict[PrecisionName, Tolerance] = {
    "fp32": Tolerance(loss=5e-6, gradient=5e-6),
    "bf16_mixed": Tolerance(loss=3e-3, gradient=3e-2),
}
"""2.5 to 4 times the worst errors of right implementations of every kind of parallelism on tiny
Llama models, against one process (PyTorch 2.13, Gloo)."""


def judge(
    result: RunResult,
    reference: RunResult,
    *,
    layout: LayoutSpec,
    training: TrainingSpec,
    kind: ParityKind,
    judged_steps: int = JUDGED_STEPS,
) -> Parity:
    """The verdict on a run of ``layout`` against a run of the same workload.

    Each term of the loss and the gradient norm of the first ``judged_steps`` steps must agree, and the
    gradients of the first step, parameter by parameter, wherever the run compared them (against a mere reference
    layout it need not have). Both must have seen the same samples. An error that cannot be worked
    out, because something is missing or not finite, is infinite.
    """
    tolerance = TOLERANCES[training.precision.name]
    replayed = result.replayed
    if replayed is not None:
        result = _with_replayed(result, replayed)
    comparison = Comparison(
        result=result,
        reference=reference,
        layout=layout,
        num_micro_batches=layout.num_micro_batches(training.global_batch_size),
        tolerance=tolerance,
        steps=judged_steps,
    )
    message, factor = why_incomparable(comparison, kind), None
    if not message:
        message, factor = why_different(comparison)
    worst = max(result.gradients, key=lambda g: _infinite_if_nan(g.error), default=None)
    return Parity(
        ok=not message,
        kind=kind,
        loss_error=comparison.worst_error(result.losses, reference.losses),
        gradient_norm_error=comparison.worst_error(result.gradient_norms, reference.gradient_norms),
        gradient_error=_infinite_if_nan(worst.error) if worst else None,
        worst_parameter=worst.name if worst else None,
        auxiliary_error=comparison.auxiliary_error,
        tolerance_loss=tolerance.loss,
        tolerance_gradient=tolerance.gradient,
        factor=factor,
        replayed_tokens=replayed.differing_tokens if replayed else None,
        message=message,
    )


def _with_replayed(result: RunResult, replayed: ReplayedSteps) -> RunResult:
    routing = result.routing and replace(result.routing, auxiliary_loss=replayed.auxiliary_loss)
    return replace(
        result, losses=replayed.losses, gradient_norms=replayed.gradient_norms, routing=routing
    )


def _infinite_if_nan(error: float) -> float:
    return math.inf if math.isnan(error) else error
