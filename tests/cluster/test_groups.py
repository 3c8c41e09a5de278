from pathlib import Path

import pytest

from meshfit.cluster.files import read_topology
from meshfit.errors import InputError

LINK = {"name": "link", "size": 2, "kind": "switch", "bandwidth": "300 GB/s"}
HOST = {"name": "host", "size": 2, "kind": "bus", "bandwidth": "32 GB/s"}
NETWORK = {"name": "network", "size": 2, "kind": "switch", "bandwidth": "12.5 GB/s"}
MATRIX = """\
      GPU0 GPU1 GPU2 GPU3
GPU0  X    SYS  SYS  NV12
GPU1  SYS  X    NV12 SYS
GPU2  SYS  NV12 X    SYS
GPU3  NV12 SYS  SYS  X
"""


def topology(**keys):
    return read_topology({"schema_version": 1, "accelerator": "A100-PCIe", **keys}, Path())


def test_groups_of_a_level_say_in_which_order_ranks_take_devices():
    levels = [LINK | {"groups": [[0, 3], [1, 2]]}, HOST, NETWORK]
    assert topology(gpus_per_host=4, levels=levels).device_order == (0, 3, 1, 2)


def test_groups_of_neighbours_change_nothing():
    levels = [LINK | {"groups": [[0, 1], [2, 3]]}, HOST]
    assert topology(gpus_per_host=4, levels=levels) == topology(
        gpus_per_host=4, levels=[LINK, HOST]
    )


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([[0, 1, 2], [3]], "2 to a group; found groups of 1, 3. Domains of unequal size"),
        ([[0, 1], [2, 2]], "each of the 4 devices of a host once"),
        ([[0, 1]], "each of the 4 devices of a host once"),
    ],
)
def test_groups_that_are_no_domains_of_their_level_are_refused(groups, message):
    with pytest.raises(InputError, match=message):
        topology(gpus_per_host=4, levels=[LINK | {"groups": groups}, HOST])


def test_groups_that_cut_those_inside_them_are_refused():
    outer = HOST | {"groups": [[0, 1, 4, 5], [2, 3, 6, 7]]}
    whole = {"name": "all", "size": 2, "kind": "bus", "bandwidth": "16 GB/s"}
    pairs = LINK | {"groups": [[0, 3], [1, 2], [4, 7], [5, 6]]}
    with pytest.raises(InputError, match="groups of level 'host' cut groups of the level inside"):
        topology(gpus_per_host=8, levels=[pairs, outer, whole])


@pytest.mark.parametrize(
    "text", [MATRIX, "X SYS SYS NV12\nSYS X NV12 SYS\nSYS NV12 X SYS\nNV12 SYS SYS X"]
)
def test_a_matrix_of_paths_makes_the_levels_inside_a_host(text):
    found = topology(matrix=text, levels=[NETWORK])
    assert [(level.name, level.size) for level in found.levels] == [
        ("link", 2), ("host", 2), ("network", 2),
    ]  # fmt: skip
    assert found.levels[0].bandwidth_bytes_per_s == 300e9
    assert (found.gpus_per_host, found.num_hosts) == (4, 2)
    assert found.device_order == (0, 3, 1, 2)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"matrix": "X NV12\nSYS X"}, "row GPU"),
        ({"matrix": "X WAT\nWAT X"}, "'WAT' is no path"),
        ({"matrix": "X SYS\nSYS X", "gpus_per_host": 4}, "gpus_per_host 4, but the matrix is of 2"),
        ({"levels": []}, "levels is empty"),
    ],
)
def test_a_matrix_that_cannot_be_is_refused_with_its_row(keys, message):
    with pytest.raises(InputError, match=message):
        topology(**keys)
