"""Our scores against the scorer that comes with the tables, where that is at hand."""

import csv
import importlib.util
import json
from pathlib import Path

import pytest

from meshfit.validate.figures import figures_by_id
from meshfit.validate.predictions import predict_rows
from meshfit.validate.rows import read_rows
from meshfit.validate.scores import NO_PREDICTION, score_figures
from tests.validate.builders import row

SUBSET = Path(__file__).with_name("data") / "training_subset.csv"
SCORER = Path(__file__).parents[3] / "shared" / "truth" / "score.py"


@pytest.fixture(scope="module")
def scorer():
    if not SCORER.exists():
        pytest.skip("the tables' scorer is not here")
    spec = importlib.util.spec_from_file_location("tables_scorer", SCORER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_figures_score_the_same_with_the_tables_own_scorer(scorer):
    rows = read_rows(SUBSET)
    figures = figures_by_id(predict_rows(rows))
    document = json.loads(json.dumps([own.as_json() for own in figures.values()]))
    with SUBSET.open(newline="") as lines:
        theirs = scorer.score(list(csv.DictReader(lines)), document)
    assert score_figures(rows, figures).as_json() == theirs


def test_a_row_without_figures_has_a_reason():
    assert score_figures([row()], {}).not_modelled == {NO_PREDICTION: 1}
