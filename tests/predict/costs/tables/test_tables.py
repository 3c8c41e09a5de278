"""The reduced tables say what was measured, within the error that their reduction states."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.predict.costs.tables.attention import attention_table
from meshfit.predict.costs.tables.chips import CHIP_OF, CHIPS
from meshfit.predict.costs.tables.collectives import node_curves
from meshfit.predict.costs.tables.matmul import matmul_table

HELD_BACK = Path(__file__).with_name("held_back.csv")
MEASURED = ("A100", "H100", "H200", "B200", "B300", "GB200", "GB300", "L40S", "RTX-PRO-6000")


def one(*values):
    return tuple(np.array([float(value)]) for value in values)


def held_back(table):
    with HELD_BACK.open(newline="") as lines:
        return [row for row in csv.DictReader(lines) if row["table"] == table]


def errors(rows, said):
    return np.array([abs(said(row) / 1e12 / float(row["tflops"]) - 1) for row in rows])


def test_matmuls_that_were_kept_out_of_the_reduction_are_met():
    def said(row):
        table = matmul_table(row["chip"], row["kind"])
        return table.rate(*one(row["first"], row["second"], row["third"]))[0]

    found = errors(rows := held_back("matmul"), said)
    assert len(rows) > 200
    assert np.median(found) < 0.06
    assert np.percentile(found, 90) < 0.18


def test_attention_that_was_kept_out_of_the_reduction_is_met():
    def said(row):
        table = attention_table(row["chip"], int(row["kind"]))
        return table.rate(*one(row["first"], row["second"]))[0]

    found = errors(rows := held_back("attention"), said)
    assert len(rows) > 100
    assert np.median(found) < 0.08
    assert np.percentile(found, 90) < 0.25


@pytest.mark.parametrize("chip", MEASURED)
def test_a_larger_matmul_is_not_slower_to_compute_than_a_tenth_of_it(chip):
    table = matmul_table(chip, "bf16")
    small, large = (
        2 * size**3 / table.rate(*one(size, size, size))[0] for size in (2048.0, 4500.0)
    )
    assert large > 5 * small


@pytest.mark.parametrize("chip", MEASURED)
def test_rates_stay_below_the_peak_of_a_dense_matmul(chip):
    peaks = {"A100": 312, "H100": 989, "H200": 989, "L40S": 362, "RTX-PRO-6000": 468}
    table = matmul_table(chip, "bf16")
    assert np.exp2(table.log_rates).max() / 1e12 < peaks.get(chip, 2500)


@given(m=st.integers(64, 100_000), n=st.integers(64, 100_000), k=st.integers(64, 100_000))
def test_a_rate_lies_between_those_of_the_grid_points_around_it(m, n, k):
    table = matmul_table("H100", "bf16")
    found = table.rate(*one(m, n, k))[0]
    assert np.exp2(table.log_rates.min()) <= found * 1.0001
    assert found <= np.exp2(table.log_rates.max()) * 1.0001


def test_rates_are_looked_up_for_many_shapes_at_once():
    table = matmul_table("A100", "bf16")
    m = np.array([512.0, 4096.0])
    together = table.rate(m, np.array([4096.0]), np.array([4096.0]))
    alone = [table.rate(*one(size, 4096, 4096))[0] for size in m]
    assert together.tolist() == pytest.approx(alone)


def test_what_was_not_measured_has_no_table():
    assert matmul_table("V100", "bf16") is None
    assert matmul_table("A100", "fp8") is None
    assert attention_table("V100", 128) is None
    assert node_curves("V100", "all_reduce") == {}


def test_the_nearest_head_dim_stands_in():
    assert attention_table("H100", 96) is attention_table("H100", 96)
    near, exact = (attention_table("H100", dim) for dim in (112, 128))
    assert np.array_equal(near.log_rates, exact.log_rates)


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_curves_of_a_node_grow_with_the_buffer_and_go_on_at_their_last_bandwidth(collective):
    curve = node_curves("H100", collective)[8]
    sizes = np.array([2.0**20, 2.0**25, 2.0**29, 2.0**31])
    seconds = curve.seconds(sizes)
    assert (np.diff(seconds) > 0).all()
    assert seconds[3] == pytest.approx(4 * seconds[2])


def test_an_h200_node_gathers_a_gibibyte_at_337_gigabytes_a_second():
    seconds = node_curves("H200", "all_gather")[8].seconds(np.array([2.0**30]))[0]
    assert 7 / 8 * 2**30 / seconds == pytest.approx(337e9, rel=0.01)


def test_every_measured_accelerator_has_a_chip_whose_cores_are_known():
    assert set(CHIP_OF) <= set(CHIPS)
    assert set(CHIP_OF.values()) == set(MEASURED)
