import io
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from meshfit.cluster.discover.conclude import conclude
from meshfit.cluster.discover.formats import readings_of
from meshfit.cluster.discover.merge import merge
from meshfit.cluster.discover.text import source_of
from meshfit.cluster.files import read_topology
from meshfit.errors import InputError
from meshfit.mesh.spec import make_layout
from meshfit.report.draw.ranks import axes_on
from meshfit.report.draw.scene import scene_of_discovery, scene_of_topology
from meshfit.report.draw.svg import scene_svg
from meshfit.report.draw.tree import scene_tree
from tests.cluster.discover import outputs

SEVEN_TO_ONE = {
    "schema_version": 1,
    "accelerator": "H100-SXM",
    "gpus_per_host": 8,
    "levels": [
        {"name": "node", "size": 8, "kind": "switch", "bandwidth": "450 GB/s"},
        {"name": "pod", "size": 4, "kind": "switch", "bandwidth": "50 GB/s", "rails": True},
        {
            "name": "spine",
            "size": 2,
            "kind": "switch",
            "bandwidth": "50 GB/s",
            "oversubscription": 7,
        },
    ],
    "storage": {"write": "2 GB/s per node"},
}


def topology(value):
    return read_topology(value, Path())


def printed(scene):
    console = Console(file=io.StringIO(), width=160)
    console.print(scene_tree(scene))
    return console.file.getvalue()


def texts(svg):
    root = ElementTree.fromstring(svg)
    return [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]


def boxes(svg):
    """Rectangles of the drawing: x, y, width, height."""
    root = ElementTree.fromstring(svg)
    found = root.iter("{http://www.w3.org/2000/svg}rect")
    return [
        tuple(float(r.get(k)) for k in ("x", "y", "width", "height")) for r in found if r.get("x")
    ]


def test_levels_rails_oversubscription_and_storage_are_drawn():
    svg = scene_svg(scene_of_topology(topology(SEVEN_TO_ONE)))
    drawn = "\n".join(texts(svg))
    for part in ("7:1 oversubscribed", "rails", "450 GB/s per accelerator (typed)", "host0",
                 "2 more like these", "storage: write 2.00 GB/s per host"):  # fmt: skip
        assert part in drawn


@pytest.mark.parametrize("cluster", ["8 H100-SXM", "2x72 GB200", "4 L40S", SEVEN_TO_ONE])
def test_every_box_lies_inside_the_drawing_and_no_two_overlap_but_by_nesting(cluster):
    svg = scene_svg(scene_of_topology(topology(cluster)))
    _, _, width, height = map(float, ElementTree.fromstring(svg).get("viewBox").split())
    found = boxes(svg)
    for x, y, w, h in found:
        assert x >= 0 and y >= 0 and x + w <= width + 1 and y + h <= height + 1
    for i, (ax, ay, aw, ah) in enumerate(found):
        for bx, by, bw, bh in found[i + 1 :]:
            apart = ax + aw <= bx + 1 or bx + bw <= ax + 1 or ay + ah <= by + 1 or by + bh <= ay + 1
            nested = (
                ax <= bx + 1 and ay <= by + 1 and bx + bw <= ax + aw + 1 and by + bh <= ay + ah + 1
            )
            assert apart or nested


def test_a_rack_is_drawn_with_its_trays():
    drawn = texts(scene_svg(scene_of_topology(topology("2x72 GB200"))))
    assert {f"host{index}" for index in range(36)} <= set(drawn)


def test_groups_of_an_axis_have_one_colour_and_name_the_level_they_reach():
    cluster = topology("2x8 H100-SXM")
    axes = axes_on(make_layout({"tp": 8, "dp_shard": 2}), cluster, sent_bytes={"tp": 3e9})
    assert [(axis.name, axis.degree, axis.level) for axis in axes] == [
        ("dp_shard", 2, "network"), ("tp", 8, "link"),
    ]  # fmt: skip
    tp = axes[1].group_of
    assert tp == (0,) * 8 + (1,) * 8
    scene = scene_of_topology(cluster, axes)
    assert "tp: 2 groups of 8 inside link, each rank sends 3 GB a step" in printed(scene)
    assert "reached by tp=8 3 GB/step" in texts(scene_svg(scene))


def test_a_layout_of_another_size_is_refused():
    with pytest.raises(
        InputError, match="the layout is of 4 ranks, the topology of 8 accelerators"
    ):
        axes_on(make_layout({"tp": 4}), topology("8 H100-SXM"))


def test_what_tools_say_is_drawn_with_numa_nodes_switches_and_cards():
    text = outputs.topo_matrix(
        [*outputs.gpus(4), "NIC0", "NIC1"],
        lambda i, j: "PIX" if {i, j} in ({0, 4}, {1, 4}, {0, 1}) else "NODE" if {i, j} <= {2, 3, 5} else "SYS",
        trailing=outputs.affinities(4),
        legend={"NIC0": "mlx5_0", "NIC1": "mlx5_1"},
    )  # fmt: skip
    found = conclude(merge(readings_of(source_of("file", text))), "L40S")
    tree = printed(scene_of_discovery(found))
    assert tree.index("NUMA 0") < tree.index("GPU0, GPU1, mlx5_0") < tree.index("NUMA 1")
    assert "GPU2, GPU3, mlx5_1" in tree
    assert scene_svg(scene_of_discovery(found)) == scene_svg(scene_of_discovery(found))


def test_text_of_the_drawing_is_escaped():
    text = outputs.topo_matrix([*outputs.gpus(1), "a<b"], lambda i, j: "SYS")
    found = conclude(merge(readings_of(source_of("file", text))))
    assert "a<b" in texts(scene_svg(scene_of_discovery(found)))
