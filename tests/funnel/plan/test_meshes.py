"""The best layout of each mesh, and those that a job names."""

from collections import Counter

import pytest

from meshfit.funnel.plan.meshes import (
    AXES_OF_MESH,
    MOST_MESHES,
    leaders_of,
    mesh_documents,
    named_documents,
)
from meshfit.funnel.plan.plan_document import plan_document
from meshfit.funnel.space.planning import make_plan
from meshfit.job.read import read_job
from meshfit.report.predicted.plan import mesh_rows

JOB = """
schema_version: 1
model: llama-3.1-8b
engine: megatron
workload: {kind: training, sequence_length: 8192, global_batch: 64 sequences}
cluster: 2x8 H100-SXM
search: {micro_batch_size: [1, 2], vpp: [1, 2]}
baseline: {tp: 8, dp_shard: 2, recompute: full}
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    path = tmp_path_factory.mktemp("meshes") / "job.yaml"
    path.write_text(JOB)
    return make_plan(read_job(path, to_run=False))


@pytest.fixture(scope="module")
def meshes(plan):
    return mesh_documents(plan, leaders_of(plan))


def mesh_of(layout):
    return tuple(getattr(layout, axis) for axis in AXES_OF_MESH)


def test_each_mesh_is_there_once_and_all_of_them_are(plan, meshes):
    shown = [tuple(row["mesh"].values()) for row in meshes]
    every = {mesh_of(plan.layout(index)) for index in range(len(plan))}
    assert len(set(shown)) == len(shown) == min(len(every), MOST_MESHES)
    assert set(shown) <= every


def test_a_row_is_the_first_of_its_mesh_in_the_plan(plan, meshes):
    for row in meshes:
        before = [plan.layout(int(index)) for index in plan.order[: row["rank"]]]
        assert before[-1].label == row["label"]
        assert mesh_of(before[-1]) not in {mesh_of(layout) for layout in before[:-1]}


def test_meshes_are_ranked_by_what_fits_and_by_speed(meshes):
    kept = [("fits", "tight", "does_not_fit").index(row["verdict"]) for row in meshes]
    assert kept == sorted(kept)
    speeds = [row["tokens_per_s"] for row in meshes if row["verdict"] == meshes[0]["verdict"]]
    assert speeds == sorted(speeds, reverse=True)


def test_variants_are_counted_within_the_interval(plan, meshes):
    row = meshes[0]
    high_s = row["interval"]["step_time"]["high"]
    within = Counter(
        mesh_of(plan.layout(index))
        for index in range(len(plan))
        if plan.verdict(index) == "fits" and plan.estimates.step_middle_s[index] <= high_s
    )
    assert row["verdict"] == "fits"
    assert row["variants"] == within[tuple(row["mesh"].values())] - 1


def test_a_line_says_which_terms_take_a_mesh_apart_from_the_first(meshes):
    assert meshes[0]["why"].startswith("compute")
    apart = [row["why"] for row in meshes[1:5]]
    assert all("+" in why or "\N{MINUS SIGN}" in why for why in apart)


def test_what_the_job_names_is_a_row_with_its_rank(plan):
    (named,) = named_documents(plan)
    assert (named["name"], named["label"]) == ("baseline", plan.job.baseline.label)
    assert named["rank"] == plan.rank_of(plan.job.baseline)
    rows = mesh_rows(plan_document(plan), top=2)
    named_rows = [row["name"] for row in rows if "name" in row]
    assert sorted(named_rows) == ["baseline", "recommended"]
    assert len(rows) == 2 + 2


def test_a_layout_that_the_search_leaves_out_gets_the_rank_it_would_have(plan, tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(JOB.replace("recompute: full", "micro_batch_size: 4"))
    job = read_job(path, to_run=False)
    (named,) = named_documents(make_plan(job))
    assert 1 < named["rank"] <= len(plan) + 1


@pytest.fixture(scope="module")
def too_large(tmp_path_factory):
    """A plan of a model that fits no layout of its cluster."""
    path = tmp_path_factory.mktemp("too_large") / "job.yaml"
    text = JOB.replace("llama-3.1-8b", "llama-3.1-405b").replace("baseline", "layout")
    path.write_text(text)
    plan = make_plan(read_job(path, to_run=False))
    assert not len(plan.fitting_order())
    return plan


def test_where_nothing_fits_the_mesh_that_needs_least_memory_comes_first(too_large):
    leaders = leaders_of(too_large)
    needed = too_large.estimates.memory_middle_bytes[leaders.rows]
    assert list(needed) == sorted(needed)
    assert leaders.rows[0] == too_large.order[0]


def test_where_nothing_fits_the_rank_that_a_layout_would_have_is_by_memory(too_large, tmp_path):
    path = tmp_path / "job.yaml"
    text = JOB.replace("llama-3.1-8b", "llama-3.1-405b")
    path.write_text(text.replace("recompute: full", "recompute: full, micro_batch_size: 4"))
    (named,) = named_documents(make_plan(read_job(path, to_run=False)))
    need = too_large.estimates.memory_middle_bytes
    less = int((need < named["interval"]["memory"]["middle"]).sum())
    assert named["rank"] == less + 1
