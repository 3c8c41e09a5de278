"""Our scores against the scorer that comes with the tables: its figures as it printed them once
(``data/scored.json``, for made-up predictions), and itself where it lies beside the project."""

import csv
import importlib.util
import json
from pathlib import Path

import pytest

from meshfit.validate.figures import Figures, figures_by_id
from meshfit.validate.predictions import predict_rows
from meshfit.validate.rows import read_rows
from meshfit.validate.scores import NO_PREDICTION, score_figures
from tests.validate.builders import row

SUBSET = Path(__file__).with_name("data") / "training_subset.csv"
SCORED = Path(__file__).with_name("data") / "scored.json"
SCORER = Path(__file__).parents[3] / "shared" / "truth" / "score.py"


VERDICTS = ("fits", "tight", "does_not_fit")


def made_up_figures(rows):
    """Figures between four and twelve tenths of what was measured, some rows without."""
    figures = {}
    for index, truth in enumerate(rows):
        share = 0.4 + 0.008 * (index * 37 % 101)
        memory = (truth.number("peak_mem_bytes") or 2e10) * share
        seconds = (truth.number("time_s") or 1.0) * share
        figures[truth.id] = (
            Figures(id=truth.id, reason="made up: none")
            if index % 9 == 4
            else Figures(
                id=truth.id,
                allocated=memory,
                reserved=memory * 1.05,
                device=memory * 1.1,
                memory_low=memory * 0.8,
                memory_high=memory * 1.5,
                step_time=seconds,
                step_time_low=seconds * 0.7,
                step_time_high=seconds * 1.4,
                verdict=VERDICTS[index % 3],
            )
        )
    return figures


def test_made_up_figures_score_as_the_tables_own_scorer_scored_them():
    rows = read_rows(SUBSET)
    ours = json.loads(json.dumps(score_figures(rows, made_up_figures(rows)).as_json()))
    assert ours == json.loads(SCORED.read_text())


@pytest.fixture(scope="module")
def scorer():
    if not SCORER.exists():
        pytest.skip("the tables' own scorer is beside the project where it is developed")
    spec = importlib.util.spec_from_file_location("tables_scorer", SCORER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "figures_of", [made_up_figures, lambda rows: figures_by_id(predict_rows(rows))]
)
def test_the_figures_score_the_same_with_the_tables_own_scorer(scorer, figures_of):
    rows = read_rows(SUBSET)
    figures = figures_of(rows)
    document = json.loads(json.dumps([own.as_json() for own in figures.values()]))
    with SUBSET.open(newline="") as lines:
        theirs = scorer.score(list(csv.DictReader(lines)), document)
    assert score_figures(rows, figures).as_json() == theirs


def test_a_row_without_figures_has_a_reason():
    assert score_figures([row()], {}).not_modelled == {NO_PREDICTION: 1}
