from dataclasses import replace

import numpy as np
import pytest

from meshfit.cluster.here import this_machine
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.spec import make_layout
from meshfit.predict.time.shared_cores import idle_share
from tests.predict.builders import cluster


def share(keys, *, cores):
    layout = make_layout(keys)
    one = cluster(device_type="cpu")
    level = replace(one.levels[0], size=layout.world_size)
    topology = replace(one, levels=(level,), gpus_per_host=layout.world_size, shared_cores=cores)
    return float(idle_share(Candidates.from_layouts([layout]), topology)[0])


@pytest.mark.parametrize(
    ("keys", "cores", "expected"),
    [
        ({"pp": 2, "dp_replicate": 2}, 2, 0.0),  # one stage alone fills both cores
        ({"pp": 4}, 2, 1 / 6),  # of four ranks one alone leaves a core idle
        ({"pp": 4}, 1, 0.0),
        ({"pp": 4}, 3, 2 * (2 + 1) / (3 * 4)),
        ({"dp_replicate": 4}, 2, 1.0),
        ({"pp": 4}, None, 1.0),
    ],
)
def test_only_cores_that_no_rank_of_a_working_stage_needs_are_idle(keys, cores, expected):
    assert share(keys, cores=cores) == pytest.approx(expected)


@pytest.mark.parametrize("pp", [2, 3, 4, 8])
def test_with_a_core_each_the_whole_bubble_is_idle(pp):
    assert share({"pp": pp, "dp_replicate": 2}, cores=2 * pp) == pytest.approx(1.0)


def test_layouts_of_different_depth_are_told_apart():
    some = [make_layout(keys) for keys in ({"pp": 4}, {"pp": 2, "tp": 2}, {"tp": 4})]
    one = cluster(device_type="cpu")
    level = replace(one.levels[0], size=4)
    topology = replace(one, levels=(level,), gpus_per_host=4, shared_cores=2)
    found = idle_share(Candidates.from_layouts(some), topology)
    assert found == pytest.approx(np.array([1 / 6, 0.0, 1.0]))


def test_this_machine_says_how_many_cores_are_shared(monkeypatch):
    monkeypatch.setattr("meshfit.cluster.here.physical_cores", lambda: 2)
    monkeypatch.setattr("meshfit.cluster.here.available_memory", lambda: 2**36)
    assert this_machine(ranks=4, oversubscribe=True, device="cpu").shared_cores == 2
    assert this_machine(ranks=2, device="cpu").shared_cores is None
