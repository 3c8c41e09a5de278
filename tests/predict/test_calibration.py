from dataclasses import replace

import numpy as np
import pytest

from meshfit.predict.calibration import Correction, formula_only
from tests.predict.builders import cluster

NAMES = ("compute", "recompute", "bubble", "optimizer", "other", "all_reduce.tp")


def calibration(**corrections):
    return replace(
        formula_only(cluster(), "native"),
        **{name: Correction(factor=factor, spread=1.1) for name, factor in corrections.items()},
    )


def test_without_measurements_the_interval_of_cpu_ranks_is_wider():
    gpu, cpu = (formula_only(cluster(device_type=kind), "native") for kind in ("cuda", "cpu"))
    assert gpu.step_time == Correction(factor=1.0, spread=2.0, basis="formula", samples=0)
    assert cpu.step_time.spread > gpu.step_time.spread


def test_every_term_has_the_factor_of_its_kind():
    terms = np.array([[2.0, 1.0, 0.0, 1.0, 0.0, 4.0]])
    found = calibration(compute=1.5, collectives=3.0, step_time=2.0).corrected(terms, NAMES)
    assert found[0] == pytest.approx([6.0, 3.0, 0.0, 3.0, 0.0, 24.0])


def test_a_bubble_and_stragglers_keep_their_share_of_the_step():
    terms = np.array([[4.0, 0.0, 2.0, 0.0, 1.0, 4.0], [0.0] * 6])
    found = calibration(compute=1.0, collectives=2.0).corrected(terms, NAMES)
    assert found[0, [2, 4]] == pytest.approx([3.0, 1.5])
    assert not found[1].any()


def test_one_factor_for_all_terms_scales_the_step():
    terms = np.array([[4.0, 0.0, 2.0, 0.0, 1.0, 4.0]])
    found = calibration(compute=1.3, collectives=1.3, step_time=0.5).corrected(terms, NAMES)
    assert found == pytest.approx(0.65 * terms)


def test_the_inverse_takes_corrections_back():
    terms = np.array([[4.0, 1.0, 2.0, 0.5, 1.0, 4.0], [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    found = calibration(compute=0.7, collectives=3.0, step_time=1.2)
    assert found.inverse().corrected(found.corrected(terms, NAMES), NAMES) == pytest.approx(terms)
