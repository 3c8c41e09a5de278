import pytest

from meshfit.cluster.files import read_topology
from meshfit.cluster.shorthand import read_shorthand
from meshfit.cluster.smaller import smaller_cluster
from meshfit.errors import InputError

TREE = {
    "schema_version": 1,
    "accelerator": "H100-SXM",
    "gpus_per_host": 8,
    "levels": [
        {"name": "node", "size": 8, "kind": "switch", "bandwidth": "450 GB/s"},
        {"name": "leaf", "size": 4, "kind": "switch", "bandwidth": "50 GB/s", "rails": True},
        {
            "name": "spine",
            "size": 4,
            "kind": "switch",
            "bandwidth": "50 GB/s",
            "oversubscription": 2,
        },
    ],
    "hosts": "n[01-16]",
}


def test_levels_are_filled_from_the_inside_with_the_numbers_they_had(tmp_path):
    whole = read_topology(TREE, tmp_path)
    two = read_topology(smaller_cluster(whole, 2), tmp_path)
    assert [(level.name, level.size) for level in two.levels] == [("node", 8), ("leaf", 2)]
    assert two.hosts == ("n01", "n02")
    assert two.levels[0] == whole.levels[0]
    assert two.levels[1].bandwidth_bytes_per_s == whole.levels[1].bandwidth_bytes_per_s
    eight = read_topology(smaller_cluster(whole, 8), tmp_path)
    assert [level.size for level in eight.levels] == [8, 4, 2]
    assert eight.levels[2].oversubscription == 2


def test_one_node_of_a_shorthand_is_a_node(tmp_path):
    one = read_topology(smaller_cluster(read_shorthand("8x8 H100-SXM"), 1), tmp_path)
    assert (one.num_hosts, one.num_accelerators) == (1, 8)
    assert one.accelerator == read_shorthand("8x8 H100-SXM").accelerator


@pytest.mark.parametrize(("hosts", "why"), [(16, "give fewer"), (6, "level 'leaf' evenly")])
def test_what_is_no_smaller_cluster_is_refused(hosts, why, tmp_path):
    with pytest.raises(InputError, match=why):
        smaller_cluster(read_topology(TREE, tmp_path), hosts)
