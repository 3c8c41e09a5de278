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


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ({"node0": "0-3,8", "node1": "4-7"}, {0: (0, 1, 2, 3, 8), 1: (4, 5, 6, 7)}),
        ({"node10": "2", "node2": "0-1"}, {2: (0, 1), 10: (2,)}),
        ({"node0": "0-1", "node1": ""}, {0: (0, 1)}),
        ({"has_cpu": "0", "possible": "0"}, {}),
        ({}, {}),
    ],
)
def test_nodes_with_processors_are_read_from_sysfs(tmp_path, nodes, found):
    for name, cpus in nodes.items():
        folder = tmp_path / "devices/system/node" / name
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus + "\n")
    assert here.numa_cpus(tmp_path) == found
