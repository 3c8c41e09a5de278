from pathlib import Path

import pytest

from meshfit.cluster import here


@pytest.fixture
def two_nodes(monkeypatch):
    monkeypatch.setattr(here, "visible_gpus", tuple)
    monkeypatch.setattr(here, "physical_cores", lambda: 8)
    monkeypatch.setattr(here, "available_memory", lambda: 16 * 2**30)
    monkeypatch.setattr(here, "numa_cpus", lambda sys: {0: (0, 1, 2, 3), 1: (4, 5, 6, 7)})


@pytest.mark.usefixtures("two_nodes")
@pytest.mark.parametrize(("ranks", "levels"), [(8, [("numa", 4), ("host", 2)]), (5, [("host", 5)])])
def test_processors_are_levels_of_numa_nodes_where_ranks_fill_them(ranks, levels):
    topology = here.this_machine(ranks=ranks)
    assert [(level.name, level.size) for level in topology.levels] == levels
    assert topology.num_accelerators == ranks


def test_the_nodes_of_this_machine_hold_its_processors():
    if not Path("/sys/devices/system/node/node0").exists():
        pytest.skip("no NUMA nodes in sysfs")
    assert sum(map(len, here.numa_cpus(Path("/sys")).values())) >= here.physical_cores()
