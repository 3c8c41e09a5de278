"""What differs between two runs of the same workload, and why that may be, in words.

A step is followed from its start: samples, loss, gradients, their norm, the update. The first of
them that differs is the one reported, since everything after it differs in consequence.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from meshfit.compare.factors import name_factor
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.schema import ParameterGradient, ParityKind, RunResult


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """Largest relative error that passes: of a loss; of a gradient norm or a gradient (L2)."""

    loss: float
    gradient: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two runs of one workload, the second of which is taken to be right."""

    result: RunResult
    reference: RunResult
    layout: LayoutSpec
    num_micro_batches: int
    tolerance: Tolerance
    steps: int

    def errors(self, values: Sequence[float], expected: Sequence[float]) -> list[float]:
        """Relative error of each judged step; infinite where a step is missing."""
        return [
            relative_error(values[step], expected[step])
            if step < min(len(values), len(expected))
            else math.inf
            for step in range(self.steps)
        ]

    def worst_error(self, values: Sequence[float], expected: Sequence[float]) -> float:
        return max(self.errors(values, expected))

    @property
    def auxiliary_error(self) -> float | None:
        """The worst of what routers add to the loss; None where neither run's do."""
        ours, theirs = auxiliary_losses(self.result), auxiliary_losses(self.reference)
        return self.worst_error(ours, theirs) if ours or theirs else None

    def factor(self, ratio: float, tolerance: float, *, roots_first: bool = False) -> str | None:
        """A known factor in words. Matched no finer than 1e-4: it is a whole number's ratio."""
        return name_factor(
            ratio,
            self.layout,
            self.num_micro_batches,
            tolerance=max(tolerance, 1e-4),
            roots_first=roots_first,
        )


def auxiliary_losses(run: RunResult) -> tuple[float, ...]:
    """What routers of experts add to the loss, by step, unscaled; empty where they add nothing."""
    return run.routing.auxiliary_loss if run.routing is not None else ()


def relative_error(value: float, expected: float) -> float:
    """``|value - expected| / |expected|``; infinite when either is not finite, or 0 is missed."""
    if not (math.isfinite(value) and math.isfinite(expected)):
        return math.inf
    if value == expected:
        return 0.0
    return abs(value - expected) / abs(expected) if expected else math.inf


def why_incomparable(comparison: Comparison, kind: ParityKind) -> str:
    """Why the two runs cannot be compared at all; empty when they can."""
    for who, run in (("the reference", comparison.reference), ("the run", comparison.result)):
        reason = _unusable(run, comparison)
        if reason:
            return f"{who} {reason}"
    steps = comparison.steps
    samples, expected = (
        comparison.result.sample_ids[:steps],
        comparison.reference.sample_ids[:steps],
    )
    if samples != expected:
        return f"the runs saw different samples{_first_difference(samples, expected)}"
    if kind != "reference" and not comparison.result.gradients:
        return "the run compared no gradients with the reference's"
    missing = {g.name for g in comparison.reference.gradients} - {
        g.name for g in comparison.result.gradients
    }
    if missing and comparison.result.gradients:
        return f"gradients are missing of {_some(sorted(missing))}"
    return ""


def _unusable(run: RunResult, comparison: Comparison) -> str:
    """What is wrong with one run by itself; empty when nothing is."""
    for what, values in (("losses", run.losses), ("gradient norms", run.gradient_norms)):
        if len(values) < comparison.steps:
            return f"has {what} of {len(values)} steps, but {comparison.steps} are judged"
        for step, value in enumerate(values[: comparison.steps], start=1):
            if not math.isfinite(value):
                return f"has {what} that are not finite ({value} in step {step})"
            if value < 0:
                return f"has {what} below zero ({value:g} in step {step}): {_negative(comparison)}"
    broken = [g.name for g in run.gradients if not math.isfinite(g.error)]
    if broken:
        return (
            f"has gradients that are not finite, or not zero where they should be: {_some(broken)}"
        )
    return ""


def _negative(comparison: Comparison) -> str:
    if comparison.layout.pp > 1:
        return (
            f"with pp={comparison.layout.pp} only the last stage has the loss, "
            "and another stage's placeholder was taken for it"
        )
    return "neither a cross entropy nor a norm can be that"


def why_different(comparison: Comparison) -> tuple[str, str | None]:
    """What differs first along a step, why that may be, and its known factor; ("", None) if nothing."""
    return (
        _first_loss(comparison)
        or _first_auxiliary(comparison)
        or _gradients(comparison)
        or _first_norm(comparison)
        or _later_steps(comparison)
        or ("", None)
    )


def _first_loss(comparison: Comparison) -> tuple[str, str | None] | None:
    loss, expected = comparison.result.losses[0], comparison.reference.losses[0]
    error = relative_error(loss, expected)
    if error <= comparison.tolerance.loss:
        return None
    what = (
        f"the loss of the first step is {loss:.6g} against {expected:.6g} "
        f"(relative error {error:.1e}, allowed {comparison.tolerance.loss:.0e})"
    )
    factor = comparison.factor(loss / expected, comparison.tolerance.loss) if expected else None
    if factor:
        return f"{what}: {loss / expected:.4g} times the reference, which is {factor}", factor
    causes = [
        "other initial weights (every rank drew its own?)",
        "active dropout",
        "a forward that computes something else",
    ]
    if comparison.num_micro_batches * comparison.layout.data_parallel_size > 1:
        causes.append(
            "a mean of micro-batch or rank means, which weighs tokens by how full theirs is"
        )
    return f"{what}: {', '.join(causes[:-1])}, or {causes[-1]}", None


def _first_auxiliary(comparison: Comparison) -> tuple[str, str | None] | None:
    ours, theirs = auxiliary_losses(comparison.result), auxiliary_losses(comparison.reference)
    if not theirs:
        return ("the run's routers add to the loss, the reference's do not", None) if ours else None
    error = comparison.errors(ours, theirs)[0]
    if error <= comparison.tolerance.loss:
        return None
    if not ours:
        return "the reference's routers add to the loss, the run's do not", None
    what = (
        f"the cross entropy agrees, but the auxiliary loss of the first step is {ours[0]:.6g} "
        f"against {theirs[0]:.6g} (relative error {error:.1e}, allowed {comparison.tolerance.loss:.0e})"
    )
    factor = comparison.factor(ours[0] / theirs[0], comparison.tolerance.loss)
    if factor:
        return f"{what}: {ours[0] / theirs[0]:.4g} times the reference, which is {factor}", factor
    return f"{what}: its means are taken over other tokens, or routers choose otherwise", None


def _gradients(comparison: Comparison) -> tuple[str, str | None] | None:
    gradients, allowed = comparison.result.gradients, comparison.tolerance.gradient
    wrong = [gradient for gradient in gradients if not gradient.error <= allowed]
    if not wrong:
        return None
    whose = (
        f"all {len(gradients)} parameters"
        if len(wrong) == len(gradients)
        else f"{len(wrong)} of {len(gradients)} parameters ({_some([g.name for g in wrong])})"
    )
    ratio = _common_ratio(wrong, allowed)
    if ratio is None:
        worst = max(wrong, key=lambda gradient: gradient.error)
        return (
            f"the loss agrees, but the first step's gradients of {whose} do not: worst "
            f"{worst.name}, relative error {worst.error:.1e}, allowed {allowed:.0e}: the backward, "
            "or the reduction of gradients over ranks, differs"
        ), None
    what = f"the gradients of {whose} are {ratio:.4g} times the reference"
    factor = comparison.factor(ratio, allowed)
    if factor is None:
        return f"{what}: only their scale differs, by no known factor", None
    why = (
        "summed over a group where they should be averaged, or scaled once too often"
        if ratio > 1
        else "averaged over a group where they should be summed, or divided once too often"
    )
    return f"{what}: {factor}; {why}", factor


def _common_ratio(gradients: Sequence[ParameterGradient], allowed: float) -> float | None:
    """The one factor by which all of these gradients differ from the reference, and by nothing else.

    With g = r g_ref + e and e orthogonal to g_ref, the relative error is sqrt((r-1)^2 + (e/g_ref)^2).
    """
    ratio = sorted(gradient.ratio for gradient in gradients)[len(gradients) // 2]
    for gradient in gradients:
        sideways = math.sqrt(max(0.0, gradient.error**2 - (gradient.ratio - 1) ** 2))
        if relative_error(gradient.ratio, ratio) > allowed or sideways > allowed * abs(ratio):
            return None
    return ratio


def _first_norm(comparison: Comparison) -> tuple[str, str | None] | None:
    norm, expected = comparison.result.gradient_norms[0], comparison.reference.gradient_norms[0]
    error = relative_error(norm, expected)
    if error <= comparison.tolerance.gradient:
        return None
    what = (
        f"the gradient norm of the first step is {norm:.6g} against {expected:.6g} "
        f"(relative error {error:.1e}, allowed {comparison.tolerance.gradient:.0e})"
    )
    if comparison.result.gradients:
        what = f"the gradients agree, but {what}"
    ratio = norm / expected if expected else math.inf
    factor = comparison.factor(
        ratio,
        comparison.tolerance.gradient,
        roots_first=bool(comparison.result.gradients),
    )
    if factor is None:
        return f"{what}: it is taken over other parameters or shards", None
    why = (
        "squares are summed over ranks that hold the same"
        if ratio > 1
        else "it is the norm of this rank's shard, not of all of them"
    )
    if not comparison.result.gradients:
        why = f"the gradients are scaled, or {why}"
    return f"{what}: {ratio:.4g} times the reference, which is {factor}; {why}", factor


def _later_steps(comparison: Comparison) -> tuple[str, str | None] | None:
    losses = comparison.errors(comparison.result.losses, comparison.reference.losses)
    norms = comparison.errors(comparison.result.gradient_norms, comparison.reference.gradient_norms)
    ours, theirs = auxiliary_losses(comparison.result), auxiliary_losses(comparison.reference)
    auxiliary = comparison.errors(ours, theirs) if theirs else [0.0] * comparison.steps
    for step in range(1, comparison.steps):
        for what, error, allowed in (
            ("loss", losses[step], comparison.tolerance.loss),
            ("auxiliary loss", auxiliary[step], comparison.tolerance.loss),
            ("gradient norm", norms[step], comparison.tolerance.gradient),
        ):
            if error > allowed:
                return (
                    f"the first step agrees, but the {what} of step {step + 1} is off by "
                    f"{error:.1e} (allowed {allowed:.0e}): the update differs (optimizer state, "
                    "clipping, weight decay or learning rate)"
                ), None
    return None


def _first_difference(
    samples: Sequence[tuple[int, ...]], expected: Sequence[tuple[int, ...]]
) -> str:
    for step, (ids, expected_ids) in enumerate(zip(samples, expected, strict=False), start=1):
        if ids != expected_ids:
            return (
                f" in step {step}: {_some(map(str, ids))} against {_some(map(str, expected_ids))}"
            )
    return f": of {len(samples)} steps against {len(expected)}"


def _some(names: Iterable[str], most: int = 3) -> str:
    """The first few names, and how many there are beyond them."""
    listed = list(names)
    rest = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {rest} more" if rest > 0 else "")
