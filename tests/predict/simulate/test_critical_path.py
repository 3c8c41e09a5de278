from itertools import pairwise

import pytest

from meshfit.mesh.candidates import SCHEDULES
from meshfit.predict.simulate.critical_path import critical_path
from tests.predict.simulate.builders import timeline

LOOPED = (
    "interleaved_1f1b",
    "looped_bfs",
    "interleaved_zero_bubble",
    "zbv_zero_bubble",
    "dualpipe_v",
)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "data", [{"dp_replicate": 4}, {"dp_shard": 4}, {"dp_shard": 4, "zero_stage": 2}]
)
def test_it_runs_from_the_start_to_the_end_without_a_gap(schedule, data):
    made = timeline({"pp": 4, "vpp": 2 if schedule in LOOPED else 1, "schedule": schedule} | data)
    path = critical_path(made, 0)
    assert path[0].start_s == 0.0
    assert path[-1].end_s == pytest.approx(made.step_s[0])
    for before, after in pairwise(path):
        assert after.start_s == pytest.approx(before.end_s, abs=1e-9)
    assert sum(segment.seconds for segment in path) == pytest.approx(made.step_s[0])


def test_a_balanced_gpipe_goes_down_the_pipeline_and_back_up():
    made = timeline({"pp": 3, "schedule": "gpipe", "dp_replicate": 4}, free_transfers=True)
    path = critical_path(made, 0)
    ranks = [segment.rank for segment in path if segment.what in ("F", "B")]
    assert ranks[0] == 0
    assert ranks[-1] == 0
    assert max(ranks) == 2
    assert path[-1].what == "optimizer"


def test_without_a_pipeline_it_is_everything():
    made = timeline({"dp_shard": 8})
    path = critical_path(made, 0)
    assert [segment.what for segment in path][:4] == ["F", "B", "F", "B"]
    assert {segment.rank for segment in path} == {0}
