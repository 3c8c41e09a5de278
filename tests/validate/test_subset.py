"""What the predictions reach on the rows that are kept here: thresholds that fail.

They lie a little above what was reached when they were set, so that an error that grows is seen.
``meshfit validate training tests/validate/data/training_subset.csv`` prints the figures.
"""

from pathlib import Path

import pytest

from meshfit.validate.figures import figures_by_id
from meshfit.validate.predictions import predict_rows
from meshfit.validate.rows import read_rows
from meshfit.validate.scores import score_figures

SUBSET = Path(__file__).with_name("data") / "training_subset.csv"

MEMORY = {
    "megatron_golden/dense": (0.01, 0.03),
    "torchtitan/dense": (0.05, 0.12),
    "torchao_torchtitan/dense": (0.025, 0.06),
    "bigscience_v100/dense": (0.08, 0.18),
}
"""Shelf -> largest median and largest 90th percentile."""
TIME = {
    "mosaic_llmfoundry/dense": (0.06, 0.09),
    "nvidia_dgxc/dense": (0.07, 0.17),
    "nvidia_nemo_docs/dense": (0.06, 0.13),
    "megatron_papers_readme/dense": (0.06, 0.25),
    "torchtitan/dense": (0.04, 0.18),
    "internevo/dense": (0.05, 0.11),
    "bigscience_v100/dense": (0.18, 0.50),
}
COVERED = (0.65, 0.92)
"""Share of the rows that 80 % intervals may hold; the table they come from asks for 75 to 90 %."""
NOT_MODELLED = 6
"""Rows at most: of frameworks or sizes that are not stated."""


@pytest.fixture(scope="module")
def predictions():
    return predict_rows(read_rows(SUBSET))


@pytest.fixture(scope="module")
def scores(predictions):
    return score_figures([found.row for found in predictions], figures_by_id(predictions))


@pytest.mark.parametrize("shelf", MEMORY)
def test_memory_of_a_family_stays_within_its_error(scores, shelf):
    median, p90 = MEMORY[shelf]
    assert scores.memory[shelf].median <= median
    assert scores.memory[shelf].p90 <= p90


@pytest.mark.parametrize("shelf", TIME)
def test_step_time_of_a_family_stays_within_its_error(scores, shelf):
    median, p90 = TIME[shelf]
    assert scores.time[shelf].median <= median
    assert scores.time[shelf].p90 <= p90


@pytest.mark.parametrize("quantity", ["memory", "time"])
def test_intervals_hold_about_as_many_rows_as_they_claim(scores, quantity):
    low, high = COVERED
    assert low <= getattr(scores, quantity)["all"].coverage <= high


def test_what_ran_out_of_memory_is_mostly_caught(scores):
    assert scores.fits.oom_rows == 8
    assert scores.fits.oom_caught >= 7


def test_what_ran_is_mostly_kept(scores):
    assert scores.fits.ok_kept >= 0.96 * scores.fits.ok_rows
    assert scores.fits.full_agree >= 0.9 * scores.fits.full_rows


def test_most_pairs_are_ordered_as_measured(scores):
    assert scores.order.pairs >= 10
    assert scores.order.pairs_right >= 0.85
    assert scores.order_wide.pairs >= 20
    assert scores.order_wide.pairs_right >= 0.75


def test_few_rows_are_not_modelled(scores):
    assert sum(scores.not_modelled.values()) <= NOT_MODELLED


def test_every_row_has_a_prediction_or_a_reason(predictions):
    assert all((found.prediction is None) != (found.reason is None) for found in predictions)


def test_a_last_rank_is_not_the_fullest_where_a_pipeline_is_deep(predictions):
    deep = [
        found
        for found in predictions
        if found.memory and found.job.memory_of == "last" and found.job.layout.pp > 2
    ]
    assert deep
    assert all(found.memory.allocated <= found.prediction.memory.allocated for found in deep)
