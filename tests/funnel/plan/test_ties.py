"""Layouts that tie with the fastest, and the one of them that is recommended."""

import io

import numpy as np
import pytest
from rich.console import Console

from meshfit.funnel.plan.meshes import leaders_of
from meshfit.funnel.plan.plan_document import plan_document
from meshfit.funnel.plan.ties import find_ties, recommended_document
from meshfit.funnel.space.planning import make_plan
from meshfit.job.read import read_job
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.simplicity import complexities
from meshfit.report.predicted.plan import plan_view

JOB = """
schema_version: 1
model: llama-3.1-8b
workload: {sequence_length: 8192, global_batch: 4M tokens}
cluster: 8x8 H100-SXM
search: {tp: [1, 2], cp: [1, 2], vpp: [1, 2], micro_batch_size: [1, 2], headroom: 10%}
"""


def planned(folder, text=JOB):
    path = folder / "job.yaml"
    path.write_text(text)
    return make_plan(read_job(path, to_run=False))


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    return planned(tmp_path_factory.mktemp("ties"))


@pytest.fixture(scope="module")
def ties(plan):
    return find_ties(plan, leaders_of(plan), shown=20)


@pytest.fixture(scope="module")
def document(plan):
    return plan_document(plan)


def complexity(layouts):
    return list(
        zip(*(c.tolist() for c in complexities(Candidates.from_layouts(layouts))), strict=True)
    )


def test_the_fastest_ties_with_itself_and_all_that_tie_fit_as_well(plan, ties):
    assert ties.fastest in ties.rows
    assert {plan.verdict(row) for row in ties.rows} == {"fits"}


def test_the_recommended_layout_is_the_simplest_that_ties(plan, ties):
    layouts = [plan.layout(row) for row in ties.rows]
    by_complexity = complexity(layouts)
    assert by_complexity == sorted(by_complexity)
    alike = by_complexity.count(by_complexity[0])
    assert ties.estimates.step_middle_s[0] == min(ties.estimates.step_middle_s[:alike])


def test_a_complicated_first_by_less_than_the_interval_yields_to_one_axis(plan, ties):
    fastest, recommended = plan.layout(ties.fastest), plan.layout(ties.rows[0])
    assert complexity([fastest])[0][0] >= 2
    assert complexity([recommended])[0][0] == 1
    assert recommended.vpp == 1


def test_a_tie_is_what_the_paired_draws_do_not_tell_apart(ties):
    steps = ties.estimates.drawn_steps(np.arange(len(ties.rows)), 4000)
    ratio = steps / steps[ties.rows.index(ties.fastest)]
    assert np.quantile(ratio, 0.1, axis=1).max() < 1.02
    assert np.quantile(ratio, 0.9, axis=1).max() < 1.2


def test_variants_whose_difference_is_certain_do_not_tie_inside_overlapping_intervals(plan, ties):
    overlapping = (plan.verdicts == plan.verdicts[ties.fastest]) & (
        plan.estimates.step_low_s <= plan.estimates.step_high_s[ties.fastest]
    )
    assert np.count_nonzero(overlapping) > len(ties.rows)


def test_the_order_by_prediction_stays_as_it_is_and_ties_are_marked(plan, document):
    ranks = [row["rank"] for row in document["meshes"]]
    assert ranks == sorted(ranks)
    assert document["candidates"][0]["label"] == plan.layout(int(plan.order[0])).label
    assert document["meshes"][0]["tied"]
    slowest = [row for row in document["meshes"] if row["verdict"] == "fits"][-1]
    assert not slowest["tied"]


def test_the_document_says_what_is_recommended_and_why(plan, ties, document):
    found = document["recommended"]
    assert found["label"] == plan.layout(ties.rows[0]).label
    assert found["among"] == len(ties.rows) > 1
    assert plan.layout(int(plan.order[found["rank"] - 1])).label == found["label"]
    assert f"the simplest of {found['among']} layouts that tie" in found["reason"]


def test_the_table_has_the_recommended_layout_as_a_row_and_marks_ties(document):
    console = Console(width=200, file=io.StringIO(), no_color=True)
    console.print(plan_view(document))
    text = console.file.getvalue()
    assert f"Recommended: {document['recommended']['label']}, " in text
    assert "(recommended)" in text
    assert "1 =" in text


def test_where_nothing_ties_the_fastest_is_recommended(tmp_path):
    one = planned(tmp_path, JOB + "layout: {dp_shard: 64}\n")
    alone = planned(
        tmp_path,
        JOB.replace(
            "search: {tp: [1, 2], cp: [1, 2], vpp: [1, 2], micro_batch_size: [1, 2]",
            "search: {tp: 2, cp: 1, pp: 1, dp_replicate: 8, micro_batch_size: 1, recompute: none, "
            "zero_stage: 3",
        ),
    )
    assert len(alone) < len(one)
    found = recommended_document(alone, find_ties(alone, leaders_of(alone), shown=20))
    assert (found["rank"], found["among"]) == (1, 1)
    assert found["reason"] == "predicted fastest, and no layout looked at ties with it"


def test_where_nothing_fits_nothing_is_recommended(tmp_path):
    none = planned(tmp_path, JOB.replace("8x8", "1x1").replace("H100-SXM", "T4"))
    assert find_ties(none, leaders_of(none), shown=20) is None
    assert plan_document(none)["recommended"] is None
