"""The step of a whole job from that of its proxy."""

from dataclasses import dataclass

from meshfit.breakdown import Interval, Prediction, TimeBreakdown


@dataclass(frozen=True, kw_only=True)
class Composed:
    """What a proxy's run says of the whole job's step.

    Attributes:
        step_time: in seconds, with what is left of the prediction's width.
        factor: measured over predicted, of the proxy.
        unmeasured: share of the whole job's predicted step that its proxy had no time of.
    """

    step_time: Interval
    factor: float
    unmeasured: float


def composed(
    whole: Prediction, proxy: Prediction, *, measured_s: float, noise_s: float
) -> Composed:
    """The predicted step times what the proxy took over what was predicted of it.

    Its interval: on the share of the step that the proxy measured, as wide as the run was noisy; on the
    rest (collectives over more nodes, a longer bubble), as the prediction was. That share is the
    overlap of both steps' terms, each as a share of its step.
    """
    factor = measured_s / proxy.step_time.middle
    unmeasured = 1 - _overlap(whole.time, proxy.time)
    middle = whole.step_time.middle * factor
    noise = min(1.0, noise_s / measured_s)
    above = whole.step_time.high / whole.step_time.middle - 1
    below = 1 - whole.step_time.low / whole.step_time.middle
    return Composed(
        step_time=Interval(
            low=middle * (1 - min(1.0, unmeasured * below + noise)),
            middle=middle,
            high=middle * (1 + unmeasured * above + noise),
            basis="measured_node_type",
        ),
        factor=factor,
        unmeasured=unmeasured,
    )


def _overlap(one: TimeBreakdown, other: TimeBreakdown) -> float:
    """Sum over terms of the smaller share: 1 for equal profiles, 0 for nothing in common."""
    mine, theirs = _shares(one), _shares(other)
    return sum(min(share, theirs.get(term, 0.0)) for term, share in mine.items())


def _shares(time: TimeBreakdown) -> dict[str, float]:
    terms = {name: value for name, value in time.as_json().items() if name != "step" and value}
    return {name: value / time.step for name, value in terms.items()}
