import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.validate.error_scores import (
    ALL,
    Sample,
    by_shelf,
    memory_samples,
    percentile,
    score,
    time_samples,
)
from meshfit.validate.figures import Figures
from tests.validate.builders import figures, row


def sample(predicted, *, measured=100.0, interval=None, **columns):
    return Sample(row=row(**columns), measured=measured, predicted=predicted, interval=interval)


def test_repeats_of_one_configuration_count_once_by_their_median():
    found = score([sample(110.0), sample(130.0), sample(112.0), sample(150.0, mbs="2")])
    assert (found.rows, found.modelled, found.configurations) == (4, 4, 2)
    assert found.median == pytest.approx((0.12 + 0.50) / 2)
    assert found.worst == pytest.approx(0.50)


def test_bias_keeps_the_sign():
    found = score([sample(90.0), sample(95.0, mbs="2"), sample(120.0, mbs="4")])
    assert found.bias == pytest.approx(-0.05)
    assert found.median == pytest.approx(0.10)


def test_a_row_that_is_not_modelled_counts_as_a_row_alone():
    found = score([sample(None), sample(100.0, mbs="2")])
    assert (found.rows, found.modelled) == (2, 1)
    assert found.median == 0


def test_nothing_modelled_has_no_error():
    found = score([sample(None)])
    assert found.median is None
    assert found.as_json() == {"rows": 1, "configurations": 0, "modelled": 0}


def test_every_row_counts_for_coverage_repeats_too():
    found = score(
        [sample(100.0, interval=(90, 110)), sample(100.0, interval=(101, 110)), sample(100.0)]
    )
    assert found.coverage == 0.5


def test_shelves_part_dense_models_from_others():
    found = by_shelf([sample(110.0), sample(150.0, arch="moe")])
    assert list(found) == [ALL, "somewhere/dense", "somewhere/other"]
    assert found["somewhere/other"].median == pytest.approx(0.5)


def test_memory_is_held_against_the_rows_own_kind():
    one = row(peak_mem_bytes="100", mem_kind="reserved")
    (found,) = memory_samples([one], figures(Figures(id="ROW-1", allocated=1.0, reserved=2.0)))
    assert found.predicted == 2.0


@pytest.mark.parametrize(
    "columns",
    [
        {"status": "oom"},
        {"mem_kind": "unnamed"},
        {"task": "qlora"},
        {"flags": "tp*pp*dp=32 != n_gpus as printed"},
        {"id": "MGD-0044"},
        {"family": "megatron_golden", "tier": "C", "framework_ver": "CI lts"},
        {"family": "megatron_golden", "tier": "C", "framework_ver": "CI dev", "stale": "--seed"},
    ],
)
def test_memory_that_does_not_count(columns):
    cells = {"peak_mem_bytes": "100", "mem_kind": "allocated"} | columns
    assert not memory_samples([row(**cells)], {})


@pytest.mark.parametrize(
    "columns",
    [
        {"family": "megatron_golden", "tier": "A"},
        {"family": "megatron_golden", "tier": "C", "framework_ver": "CI dev", "stale": "0"},
        {"family": "nanotron", "mem_kind": "unnamed"},
    ],
)
def test_memory_that_counts(columns):
    cells = {"peak_mem_bytes": "100", "mem_kind": "allocated"} | columns
    assert memory_samples([row(**cells)], {})


def test_toy_sizes_of_tests_have_no_time_that_counts():
    assert time_samples([row(time_s="1.0")], {})
    assert not time_samples([row(time_s="1.0", family="megatron_golden")], {})


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 100))
def test_a_percentile_lies_between_the_least_and_the_most(values, percent):
    slack = 1e-9 * max(map(abs, values))
    assert min(values) - slack <= percentile(values, percent) <= max(values) + slack


def test_a_percentile_is_interpolated():
    assert percentile([0.0, 10.0], 90) == pytest.approx(9.0)
    assert percentile([3.0], 90) == 3.0
