"""Cells of tables of layouts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from meshfit.mesh.spec import make_layout
from meshfit.report.parts.cells import KeysText, memory_bar

LAYOUT = make_layout(
    {"dp_shard": 16, "tp": 2, "pp": 2, "vpp": 2, "stage_layers": [8, 9, 9, 6], "zero_stage": 2}
)


def lines_of(width: int) -> list[str]:
    console = Console(width=width, no_color=True)
    table = Table.grid()
    table.add_row(KeysText(LAYOUT.as_json()))
    with console.capture() as captured:
        console.print(table)
    return captured.get().split()


def test_a_layout_that_has_room_is_one_word_that_layout_takes() -> None:
    assert lines_of(200) == [LAYOUT.label]


@given(st.integers(30, 120))
def test_in_a_narrow_cell_it_goes_on_after_a_comma(width: int) -> None:
    lines = lines_of(width)
    assert "".join(lines) == LAYOUT.label
    assert all(line.endswith(",") for line in lines[:-1])
    assert all(len(line) <= width for line in lines)


@pytest.mark.parametrize(("total", "filled"), [(0, 1), (50, 4), (100, 8), (900, 8)])
def test_the_memory_bar_is_as_full_as_the_device(total: int, filled: int) -> None:
    bar = memory_bar({"total": total, "capacity": 100}, "fits")
    assert bar.plain.count("█") == filled
    assert bar.plain.count("█") + bar.plain.count("░") == 8


def test_memory_without_a_capacity_is_a_figure_without_a_bar() -> None:
    assert memory_bar({"total": 2**20, "capacity": None}, "fits").plain == "fits\n1.00 MiB"
