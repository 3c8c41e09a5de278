from dataclasses import replace

import numpy as np
import pytest

from meshfit.breakdown import MEMORY_CATEGORIES
from meshfit.engines.native.profile import NATIVE
from meshfit.predict.calibration import Correction, formula_only
from meshfit.predict.estimate import estimate
from tests.predict.builders import BF16, cluster, layouts, llama_8b, training

KEYS = (
    {"dp_shard": 64, "recompute": "full"},
    {"dp_shard": 8, "tp": 8},
    {"pp": 4, "tp": 8, "dp_shard": 2},
    {"dp_replicate": 64},
    {"pp": 4, "tp": 8, "dp_shard": 2, "recompute": "full"},
    {"pp": 4, "vpp": 2, "tp": 8, "dp_shard": 2},
)
SPEC = training(sequence_length=8192, global_batch_size=512, precision=BF16)


def found(*keys, **options):
    return estimate(llama_8b(), SPEC, cluster(nodes=8), layouts(*keys), NATIVE, **options)


def test_a_row_does_not_depend_on_the_rows_around_it():
    together = found(*KEYS)
    for index, keys in enumerate(KEYS):
        alone = found(keys)
        assert alone.prediction(0) == together.prediction(index)
        assert alone.worst_rank[0] == together.worst_rank[index]


def test_a_row_is_as_heavy_as_its_heaviest_rank():
    for index in range(len(KEYS)):
        all_rows = found(*KEYS)
        ranks = all_rows.ranks(index)
        heaviest = max(ranks, key=lambda memory: memory.total)
        assert all_rows.prediction(index).memory == heaviest
        assert ranks[all_rows.worst_rank[index]] == heaviest
        assert len(ranks) == KEYS[index].get("pp", 1)


def test_categories_and_terms_add_up():
    rows = found(*KEYS)
    for index in range(len(KEYS)):
        prediction = rows.prediction(index)
        assert prediction.time.step == pytest.approx(prediction.step_time.middle)
        assert prediction.memory.total == pytest.approx(prediction.memory_total.middle, rel=1e-6)
        assert prediction.tokens_per_s == pytest.approx(SPEC.tokens_per_step / prediction.time.step)
    assert rows.memory_categories.shape == (len(KEYS), len(MEMORY_CATEGORIES))


def test_what_does_not_fit_is_bound_by_memory():
    rows = found(*KEYS)
    assert rows.prediction(3).binding == "memory"
    assert rows.prediction(0).binding == "compute"


def test_take_picks_rows():
    rows = found(*KEYS)
    some = rows.take(np.array([4, 0]))
    assert some.prediction(0) == rows.prediction(4)
    assert some.prediction(1) == rows.prediction(0)
    assert len(rows.take(rows.tokens_per_s > 0)) == len(KEYS)


def test_no_candidates_give_no_rows():
    assert len(found(*KEYS).take(np.array([], dtype=np.int64))) == 0
    empty = layouts(*KEYS).take(np.array([], dtype=np.int64))
    assert len(estimate(llama_8b(), SPEC, cluster(nodes=8), empty, NATIVE)) == 0


def test_calibration_moves_time_and_its_basis():
    measured = replace(
        formula_only(cluster(), "native"),
        step_time=Correction(factor=1.5, spread=1.1, basis="measured_here", samples=5),
    )
    plain, calibrated = found(*KEYS), found(*KEYS, calibration=measured)
    assert calibrated.step_middle_s == pytest.approx(1.5 * plain.step_middle_s)
    interval = calibrated.prediction(0).step_time
    assert interval.basis == "measured_here"
    assert interval.high / interval.low == pytest.approx(1.1**2)


def test_estimates_under_other_corrections_are_those_made_with_them():
    measured = replace(
        formula_only(cluster(), "native"),
        compute=Correction(factor=1.5, spread=1.1),
        collectives=Correction(factor=0.5, spread=1.1),
        step_time=Correction(factor=1.2, spread=1.1, basis="measured_here", samples=5),
        memory=Correction(factor=1.1, spread=1.02),
    )
    plain, calibrated = found(*KEYS), found(*KEYS, calibration=measured)
    for made, expected in (
        (plain.under(measured), calibrated),
        (calibrated.under(formula_only(cluster(), "native")), plain),
    ):
        for name in ("time_terms", "step_high_s", "memory_middle_bytes", "memory_low_bytes"):
            assert getattr(made, name) == pytest.approx(getattr(expected, name))


def test_a_cuda_device_adds_what_the_allocator_and_the_driver_hold():
    plain = found(KEYS[0])
    memory = plain.prediction(0).memory
    assert memory.reserved > memory.allocated
    assert memory.context > 2**29
    assert plain.memory_middle_bytes[0] == pytest.approx(memory.total)
    on_cpu = estimate(llama_8b(), SPEC, cluster(device_type="cpu"), layouts(KEYS[0]), NATIVE)
    assert on_cpu.prediction(0).memory.reserved is None
