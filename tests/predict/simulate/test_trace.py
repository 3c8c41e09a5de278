import json

import pytest

from meshfit.predict.simulate.trace import COMPUTE, PIPELINE, SHARDING, chrome_trace
from tests.predict.simulate.builders import timeline


def events(made, lane):
    trace = json.loads(json.dumps(chrome_trace(made, 0)))
    return [one for one in trace["traceEvents"] if one["ph"] == "X" and one["tid"] == lane]


def test_every_action_is_there_and_none_overlap_on_a_rank():
    made = timeline({"pp": 4, "vpp": 2, "schedule": "zbv_zero_bubble", "dp_shard": 4})
    computing = events(made, COMPUTE)
    assert len([one for one in computing if "stage" in one["args"]]) == len(made.waves)
    for rank in range(4):
        own = sorted((one["ts"], one["ts"] + one["dur"]) for one in computing if one["pid"] == rank)
        ends = [end for _, end in own]
        assert all(start >= end - 1e-3 for (start, _), end in zip(own[1:], ends, strict=False))
    assert max(one["ts"] + one["dur"] for one in computing) == pytest.approx(1e6 * made.step_s[0])


def test_every_send_goes_to_another_rank():
    made = timeline({"pp": 4, "dp_replicate": 4})
    assert len(events(made, PIPELINE)) == int(made.waves.crosses.sum()) == 2 * 3 * 16


def test_parameters_that_stay_gathered_are_gathered_once():
    made = timeline({"pp": 4, "dp_shard": 4, "zero_stage": 2})
    gathers = [one for one in events(made, SHARDING) if one["name"].startswith("all_gather")]
    assert len(gathers) == 32
    again = timeline({"pp": 4, "dp_shard": 4, "zero_stage": 3})
    gathers = [one for one in events(again, SHARDING) if one["name"].startswith("all_gather")]
    assert len(gathers) == 2 * 16 * 32


def test_the_critical_path_is_marked():
    made = timeline({"pp": 4, "dp_replicate": 4})
    marked = [one for one in events(made, COMPUTE) if one["args"].get("critical")]
    assert 16 <= len(marked) < len(made.waves)
