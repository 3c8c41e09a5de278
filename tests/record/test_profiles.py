"""The mean of several profiles."""

import pytest

from meshfit.breakdown import TimeBreakdown
from meshfit.record.profiles import mean_profile
from meshfit.record.schema import StepProfile


def profile(host_s: float | None = None, **exposed: float) -> StepProfile:
    time = TimeBreakdown(
        compute=10.0, other=4.0, exposed={name.replace("__", "."): s for name, s in exposed.items()}
    )
    return StepProfile(
        time=time, waiting_s=2.0, communication_s=sum(exposed.values()), host_s=host_s
    )


def test_the_mean_has_every_communication_of_any_of_them() -> None:
    mean = mean_profile([profile(all_reduce__dp_shard=10.0), profile(all_gather__tp=4.0)])
    assert mean.time.exposed == {"all_gather.tp": 2.0, "all_reduce.dp_shard": 5.0}
    assert mean.time.step == pytest.approx(10 + 4 + 7)
    assert mean.communication_s == 7


def test_a_term_that_one_lacks_is_the_mean_of_the_others() -> None:
    mean = mean_profile([profile(host_s=3.0), profile()])
    assert (mean.host_s, mean.core_wait_s, mean.unattributed_s) == (3.0, None, 1.0)
    assert mean.time.bubble is None
