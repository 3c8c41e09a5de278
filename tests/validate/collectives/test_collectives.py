import csv

import numpy as np
import pytest

from meshfit.errors import InputError
from meshfit.predict.costs.constants import link_constants
from meshfit.report.scores.collectives import collectives_sections
from meshfit.validate.collectives.document import collectives_document
from meshfit.validate.collectives.fit import fitted_to, measured_curves
from meshfit.validate.collectives.predictions import interpolated, predict_collectives
from meshfit.validate.collectives.rows import read_collective_rows

HEADER = [
    "source",
    "system",
    "op",
    "dtype",
    "ranks",
    "nodes",
    "ranks_per_node",
    "size_bytes",
    "time_us",
    "note",
]
SIZES = [2**power for power in range(10, 30, 2)]


def line(*, system="h100_sxm", op="all_reduce", ranks=8, nodes=1, size=1024, time_us=20.0, note=""):
    return ("made", system, op, "half", ranks, nodes, ranks // nodes, size, time_us, note)


def table(folder, lines, header=HEADER):
    path = folder / "collectives.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *lines])
    return path


def straight(system, bandwidth, **more):
    """Times of 10 us and a bandwidth: no published figures."""
    return [
        line(system=system, size=size, time_us=10 + size / bandwidth * 1e6, **more)
        for size in SIZES
    ]


def test_rows_are_read_with_nccl_tests_names(tmp_path):
    (row,) = read_collective_rows(table(tmp_path, [line(op="alltoall", nodes=2, ranks=16)]))
    assert (row.collective, row.family, row.ranks, row.nodes) == ("all_to_all", "multi_node", 16, 2)
    assert row.seconds == pytest.approx(20e-6)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"op": "allreduce"}, "op 'allreduce' is none of all_reduce"),
        ({"time_us": "fast"}, "must be numbers"),
        ({"time_us": 0}, "greater than 0"),
        ({"ranks": 7, "nodes": 2}, "7 ranks do not fill 2 nodes"),
    ],
)
def test_a_wrong_row_is_refused_with_its_line(tmp_path, change, said):
    with pytest.raises(InputError, match=said) as raised:
        read_collective_rows(table(tmp_path, [line(), line(**change)]))
    assert "collectives.csv:3" in str(raised.value)


def test_a_file_of_another_schema_is_refused(tmp_path):
    with pytest.raises(InputError, match="lacks columns of the schema: time_us"):
        read_collective_rows(table(tmp_path, [], [name for name in HEADER if name != "time_us"]))


def test_every_other_size_is_held_back_and_read_between_its_neighbours(tmp_path):
    rows = read_collective_rows(table(tmp_path, straight("h100_sxm", 300e9)))
    found = interpolated(rows)
    assert set(found) == {row.id for row in rows[1:-1:2]}
    for row in rows[1:-1:2]:
        assert found[row.id] == pytest.approx(row.seconds, rel=0.35)


def test_one_thread_that_starts_all_ranks_is_seen_in_the_note(tmp_path):
    notes = ("nccl-tests -g 8 -n 50", "mpirun -np 8 -g 1", "")
    rows = read_collective_rows(table(tmp_path, [line(note=note) for note in notes]))
    assert [row.is_of_one_thread for row in rows] == [True, False, False]


def test_a_fit_finds_what_the_formula_made(tmp_path):
    """Times made by the formula itself, of a link a fifth faster than any fitted one."""
    lines = straight("h100_sxm", 300e9) + straight("a100_sxm", 200e9)
    curves = measured_curves(read_collective_rows(table(tmp_path, lines)))
    truth = link_constants().with_values({"share.all_reduce": 1.1, "launch.all_reduce": 4e-6})
    made = [
        line(system=p.case.system, size=p.size_bytes, time_us=1e6 * seconds)
        for p, seconds in zip(curves.points, curves.predicted(truth), strict=True)
    ]
    again = measured_curves(read_collective_rows(table(tmp_path, made)))
    assert np.allclose(again.predicted(fitted_to(again)) / again.seconds, 1, atol=0.03)


def test_a_system_is_predicted_without_its_own_measurements(tmp_path):
    """Whatever a system measures, what is said of it stays the same."""

    def said(bandwidth):
        lines = straight("h100_sxm", 300e9) + straight("a100_sxm", bandwidth)
        rows = read_collective_rows(table(tmp_path, lines))
        return [p.formula for p in predict_collectives(rows) if p.row.system == "a100_sxm"]

    assert said(200e9) == pytest.approx(said(50e9))


def test_the_document_has_the_published_keys_and_a_reason_for_every_gap(tmp_path):
    lines = [*straight("h100_sxm", 300e9), *straight("b200_sxm", 600e9), line(system="a box")]
    told = []
    rows = read_collective_rows(table(tmp_path, lines))
    document = collectives_document("f", predict_collectives(rows, told.append), with_targets=True)
    assert told == ["b200_sxm", "h100_sxm"]
    assert len(document["rows"]) == len(lines)
    for row in document["rows"]:
        assert {"id", "predicted", "measured", "low", "high", "reason"} <= set(row)
        assert (row["predicted"] is None) == (row["reason"] is not None)
    assert document["not_modelled"] == {"not in the catalogue: a box": 1}
    assert set(document["summary"]) == {"intra_node", "interpolation"}
    assert {target["name"]: target["reached"] for target in document["targets"]}[
        "multi_node: median"
    ] is None
    titles = [section.title for section in collectives_sections(document)]
    assert "Formula by system, each system left out" in titles
