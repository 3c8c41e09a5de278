"""Layouts that a person asked for, and fast ones that do not fit: what would help each."""

import pytest
from rich.console import Console

from meshfit.funnel.check.checking import broken_rules, check_document
from meshfit.funnel.plan.plan_document import plan_document
from meshfit.funnel.space.planning import make_plan
from meshfit.job.layout import layout_of_keys
from meshfit.job.read import read_job
from meshfit.report.predicted.plan import plan_view

JOB = """
schema_version: 1
model: llama-3.1-70b
engine: megatron
workload: {sequence_length: 8192, global_batch: 256 sequences}
cluster: 8x8 H100-SXM
search: {vpp: 1, cp: 1, tp: [4, 8], micro_batch_size: [1, 2], schedule: 1f1b}
layout: {tp: 8, pp: 4, dp_replicate: 2, micro_batch_size: 2}
baseline: {tp: 16, pp: 4, dp_replicate: 2}
"""


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    path = tmp_path_factory.mktemp("left_behind") / "job.yaml"
    path.write_text(JOB)
    plan = make_plan(read_job(path, to_run=False))
    return plan, plan_document(plan)


def test_the_layouts_of_the_job_are_judged_with_their_rank(planned):
    plan, document = planned
    given, baseline = document["asked"]
    assert (given["name"], given["verdict"]) == ("layout", "does_not_fit")
    assert plan.layout(int(plan.order[given["rank"] - 1])) == plan.job.layout
    assert (baseline["name"], baseline["verdict"], baseline["rank"]) == (
        "baseline",
        "invalid",
        None,
    )
    assert [violation["rule"] for violation in baseline["violations"]] == ["world_size"]


def test_every_change_really_makes_a_layout_fit(planned):
    plan, document = planned
    too_large = document["too_large"]
    assert too_large
    for one in (document["asked"][0], *too_large):
        assert one["advice"][0].startswith("stage ")
        assert one["changes"]
        for change, words in zip(one["changes"], one["advice"][1:], strict=True):
            layout = layout_of_keys(change["layout"], plan.job.profile)
            assert check_document(plan.job, layout)["verdict"] == "fits"
            assert words.startswith(f"fits with {change['words']}: at most ")


def test_every_change_really_makes_an_illegal_layout_legal(planned):
    plan, document = planned
    baseline = document["asked"][1]
    assert "legal with tp=8" in baseline["advice"]
    for change in baseline["changes"]:
        layout = layout_of_keys(change["layout"], plan.job.profile)
        assert broken_rules(plan.job, layout) == ()


def test_layouts_that_are_too_large_are_faster_than_all_that_fit(planned):
    plan, document = planned
    capacity = plan.job.topology.accelerator.memory_bytes
    for one in document["too_large"]:
        rank = plan.rank_of(layout_of_keys(one["layout"], plan.job.profile))
        index = int(plan.order[rank - 1])
        assert plan.verdict(index) == one["verdict"] == "does_not_fit"
        assert capacity < plan.estimates.memory_middle_bytes[index] <= 1.5 * capacity
        assert one["step_time"] < document["candidates"][0]["time"]["step"]


def test_changes_stay_inside_what_the_job_searches(planned):
    _, document = planned
    for one in document["too_large"]:
        for change in one["changes"]:
            assert change["layout"].get("cp", 1) == 1
            assert change["layout"].get("tp", 1) in (1, 4, 8) or change["layout"] == one["layout"]


def test_a_terminal_shows_what_would_help(planned):
    console = Console(width=140, color_system=None)
    with console.capture() as capture:
        console.print(plan_view(planned[1], top=1))
    text = capture.get()
    assert "layout dp_replicate=2,tp=8,pp=4,micro_batch_size=2: does not fit" in text
    assert "would be faster, but does not fit" in text
    assert "• fits with " in text
