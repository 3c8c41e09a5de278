from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.cluster.here import this_machine
from meshfit.predict.time.shared_cores import core_share, shared_pipeline
from tests.predict.builders import cluster


def cores(count, ranks):
    """So many ranks on one host, which share ``count`` cores."""
    one = cluster(device_type="cpu")
    level = replace(one.levels[0], size=ranks)
    return replace(one, levels=(level,), gpus_per_host=ranks, shared_cores=count)


def pipeline(computed_s, waited_s, *, count, ranks):
    """Of one layout, each rank of its own kind."""
    columns = (np.array(seconds, dtype=np.float64)[:, None] for seconds in (computed_s, waited_s))
    return shared_pipeline(*columns, np.ones(len(computed_s)), cores(count, ranks))


def idle_share(stages, *, count, ranks):
    """What is left of the bubble that equal stages without waits have at their share of the cores."""
    found = pipeline([1.0] * stages, [0.0] * stages, count=count, ranks=ranks)
    return float(found.bubble_share[0]) * core_share(cores(count, ranks))


@pytest.mark.parametrize(
    ("stages", "count", "expected"),
    [
        (2, 2, 0.0),  # one stage alone fills both cores
        (4, 2, 1 / 6),  # of four ranks one alone leaves a core idle
        (4, 1, 0.0),
        (4, 3, 2 * (2 + 1) / (3 * 4)),
    ],
)
def test_only_cores_that_no_rank_of_a_working_stage_needs_are_idle(stages, count, expected):
    assert idle_share(stages, count=count, ranks=4) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("stages", [2, 3, 4, 8])
def test_with_a_core_each_the_whole_bubble_is_idle(stages):
    assert idle_share(stages, count=2 * stages, ranks=2 * stages) == pytest.approx(1.0)


def test_equal_stages_that_wait_for_nothing_take_their_share_of_the_cores():
    found = pipeline([2.0, 2.0], [0.0, 0.0], count=1, ranks=2)
    assert found.turn_s == pytest.approx([2.0])
    assert found.slowest_s == pytest.approx([1.0])


def test_a_stage_that_waits_leaves_its_core_to_the_other():
    """Alone on the core each computes for 1 s and waits for 1 s. Both compute in a quarter of the time,
    which then lasts twice as long: 2 s x (3/4 + 2/4). Without the other's waits it would be 3 s."""
    found = pipeline([2.0, 2.0], [1.0, 1.0], count=1, ranks=2)
    assert found.turn_s == pytest.approx([2.5])


def test_a_light_stage_leaves_its_core_to_a_heavy_one():
    """One core, 3 s and 1 s of work in turns of 3 s, so that two thirds of a turn are busy on average:
    3 s x (1 + 4/9); by its half of the core the heavy stage alone would take 6 s."""
    found = pipeline([6.0, 2.0], [0.0, 0.0], count=1, ranks=2)
    assert found.turn_s == pytest.approx([3 * (1 + 4 / 9)])


some = st.lists(st.tuples(st.floats(0.1, 10), st.floats(0, 10)), min_size=2, max_size=8)


@given(stages=some, each=st.integers(1, 4), data=st.data())
def test_a_turn_lies_between_all_work_over_all_cores_and_all_in_turns(stages, each, data):
    ranks = each * len(stages)
    count = data.draw(st.integers(1, ranks))
    computed, waited = (np.array(seconds) for seconds in zip(*stages, strict=True))
    found = pipeline(computed, waited, count=count, ranks=ranks)
    alone = count / ranks * computed + waited
    least = max(computed.mean(), alone.max())
    assert least * (1 - 1e-9) <= found.turn_s[0] <= (computed.max() + waited.max()) * (1 + 1e-9)
    assert found.bubble_share[0] >= -1e-9


def test_layouts_side_by_side_are_told_apart():
    computed, waited = np.array([[2.0, 6.0], [2.0, 2.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])
    found = shared_pipeline(computed, waited, np.ones(2), cores(1, 2))
    assert found.turn_s == pytest.approx([2.5, 3 * (1 + 4 / 9)])


def test_ranks_with_a_core_each_have_all_of_it():
    assert core_share(cluster(device_type="cpu")) == 1.0
    assert core_share(cores(2, 8)) == 0.25


def test_this_machine_says_how_many_cores_are_shared(monkeypatch):
    monkeypatch.setattr("meshfit.cluster.here.physical_cores", lambda: 2)
    monkeypatch.setattr("meshfit.cluster.here.available_memory", lambda: 2**36)
    assert this_machine(ranks=4, oversubscribe=True, device="cpu").shared_cores == 2
    assert this_machine(ranks=2, device="cpu").shared_cores is None
