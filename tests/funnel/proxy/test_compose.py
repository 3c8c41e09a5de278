from dataclasses import replace

import pytest

from meshfit.breakdown import Interval, MemoryBreakdown, Prediction, TimeBreakdown
from meshfit.funnel.proxy.compose import composed


def predicted(**terms: float) -> Prediction:
    exposed = {name.replace("__", "."): terms.pop(name) for name in list(terms) if "__" in name}
    time = TimeBreakdown(exposed=exposed, **terms)
    return Prediction(
        memory=MemoryBreakdown(),
        time=time,
        memory_total=Interval(low=1, middle=1, high=1),
        step_time=Interval(low=time.step / 2, middle=time.step, high=time.step * 2),
        tokens_per_s=1.0,
        binding="compute",
        profile="native",
    )


WHOLE = predicted(compute=8.0, all_gather__dp_shard=2.0)


def test_a_proxy_of_the_same_profile_leaves_its_noise_alone():
    small = predicted(compute=0.8, all_gather__dp_shard=0.2)
    found = composed(WHOLE, small, measured_s=1.5, noise_s=0.015)
    assert (found.factor, found.unmeasured) == (pytest.approx(1.5), pytest.approx(0.0))
    step = found.step_time
    assert (step.low, step.middle, step.high) == pytest.approx((14.85, 15.0, 15.15))
    assert step.basis == "measured_node_type"


def test_what_the_proxy_had_no_time_of_keeps_the_predictions_width():
    found = composed(WHOLE, predicted(compute=1.0), measured_s=1.0, noise_s=0.0)
    assert found.unmeasured == pytest.approx(0.2)
    step = found.step_time
    assert (step.low, step.middle, step.high) == pytest.approx((9.0, 10.0, 12.0))


def test_a_proxy_that_measured_nothing_of_it_narrows_nothing():
    other = predicted(bubble=1.0)
    step = composed(WHOLE, other, measured_s=1.0, noise_s=0.0).step_time
    assert (step.low, step.middle, step.high) == pytest.approx((5.0, 10.0, 20.0))


def test_noise_never_makes_a_step_negative():
    small = replace(WHOLE)
    step = composed(WHOLE, small, measured_s=10.0, noise_s=float("inf")).step_time
    assert step.low == pytest.approx(0.0, abs=1e-9)
    assert step.high == pytest.approx(20.0)
