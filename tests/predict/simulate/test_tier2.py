import numpy as np
import pytest

from meshfit.predict.estimate import estimate
from meshfit.predict.simulate.tier2 import num_actions, simulated, timeline_of
from tests.predict.builders import WITHOUT_HOST, cluster, layouts
from tests.predict.simulate.builders import BATCH, EVEN

KEYS = (
    {"pp": 4, "dp_shard": 8},
    {"pp": 4, "vpp": 2, "dp_shard": 8},
    {"pp": 2, "dp_shard": 16, "micro_batch_size": 2},
    {"dp_shard": 32},
    {"pp": 4, "vpp": 2, "schedule": "zbv_zero_bubble", "dp_replicate": 8},
)


@pytest.fixture(scope="module")
def estimates():
    return estimate(EVEN, BATCH, cluster(nodes=4), layouts(*KEYS), WITHOUT_HOST)


def test_chosen_rows_get_the_times_of_their_timelines(estimates):
    rows = np.array([4, 0, 2])
    timed = simulated(estimates, rows)
    for row in rows:
        made = timeline_of(timed.candidates.layout(int(row)), estimates.basis)
        other = timed.prediction(int(row)).time.step - made.step_s[0]
        assert other == pytest.approx(0.0, abs=1e-9)
        assert timed.tokens_per_s[row] == pytest.approx(BATCH.tokens_per_step / made.step_s[0])


def test_other_rows_and_memory_stay_as_they_are(estimates):
    timed = simulated(estimates, np.array([0]))
    others = [1, 2, 3, 4]
    assert (timed.step_middle_s[others] == estimates.step_middle_s[others]).all()
    assert (timed.memory_middle_bytes == estimates.memory_middle_bytes).all()
    assert timed.step_low_s[0] < timed.step_middle_s[0] < timed.step_high_s[0]


def test_actions_are_both_passes_of_every_micro_batch_on_every_stage(estimates):

    whole = BATCH.global_batch_size
    expected = [2 * whole // 8 * 4, 2 * whole // 8 * 8, 2 * whole // 32 * 2, 2 * whole // 32]
    assert num_actions(estimates, np.arange(4)).tolist() == expected
