import xml.etree.ElementTree as ET

import pytest

from meshfit.report.page import charts

MIB = 2**20


def measured(name, median):
    return charts.Measured(name=name, median=median, low=0.9 * median, high=1.1 * median)


def texts(svg):
    # The page's own namespace is left out of inline SVG, so a plain parser reads it.
    return ["".join(node.itertext()).strip() for node in ET.fromstring(svg).iter("text")]


def test_throughput_names_every_candidate_and_its_median():
    shown = texts(charts.throughput([measured("A DDP", 1234.0), measured("B TP", 900.0)]))
    assert {"A DDP", "B TP", "1,234", "900"} <= set(shown)


@pytest.mark.parametrize(("capacity", "drawn"), [(30 * MIB, True), (3000 * MIB, False)])
def test_the_capacity_is_drawn_only_near_the_bars(capacity, drawn):
    pair = charts.MemoryPair(name="A", measured={"parameters": 10 * MIB}, predicted=None)
    assert ("capacity" in texts(charts.memory([pair], capacity_bytes=capacity))) is drawn


def test_only_categories_that_take_memory_are_in_the_legend():
    pair = charts.MemoryPair(
        name="A", measured={"parameters": MIB, "gradients": 0}, predicted={"optimizer": MIB}
    )
    shown = texts(charts.memory([pair]))
    assert {"parameters", "optimizer"} <= set(shown)
    assert "gradients" not in shown


def test_rank_times_take_candidates_with_different_numbers_of_ranks():
    rows = [("A", [measured("rank 0", 0.1)]), ("B", [measured(f"rank {r}", 0.1) for r in range(8)])]
    assert {"A", "B"} <= set(texts(charts.rank_times(rows)))


@pytest.mark.parametrize("reference", [None, charts.LossCurve(name="reference", losses=[3.0, 2.0])])
def test_losses_are_drawn_with_and_without_a_reference(reference):
    curves = [charts.LossCurve(name="A", losses=[3.0, 2.0, 1.0])]
    shown = texts(charts.losses(reference, curves, judged_steps=2, tolerance=5e-6))
    assert ("relative distance" in shown) is (reference is not None)


@pytest.mark.filterwarnings("error")
def test_losses_of_a_whole_sweep_leave_room_for_their_axes():
    name = "dp_shard=2,pp=2,schedule=gpipe,zero_stage=2,micro_batch_size=2 #{}"
    curves = [charts.LossCurve(name=name.format(i), losses=[3.0, 2.0]) for i in range(70)]
    shown = texts(charts.losses(curves[0], curves))
    assert name.format(69) in shown


def test_a_name_is_never_read_as_math_or_markup():
    name = "A $x_1$ <b>"
    svg = charts.throughput([measured(name, 1.0)])
    assert name in texts(svg)
    assert name in texts(charts.losses(None, [charts.LossCurve(name=name, losses=[1.0])]))
    assert "<b>" not in svg


def test_drawing_leaves_matplotlibs_settings_as_they_were():
    mpl = pytest.importorskip("matplotlib")
    before = dict(mpl.rcParams)
    charts.throughput([measured("A", 1.0)])
    assert dict(mpl.rcParams) == before
