"""The published layout of Llama 3.1 405B (2407.21783, table 4) in its plan, as the example has it."""

from dataclasses import replace
from pathlib import Path

import pytest

from meshfit.funnel.plan.meshes import named_documents
from meshfit.funnel.plan.stages import stage_notes
from meshfit.funnel.space.planning import make_plan
from meshfit.job.read import NO_CALIBRATION, read_job
from meshfit.mesh.search import SearchSpec

EXAMPLE = Path(__file__).parents[2] / "examples" / "llama-405b" / "job.yaml"
GIB = 2**30


@pytest.fixture(scope="module")
def plan():
    job = read_job(EXAMPLE, calibration=NO_CALIBRATION, to_run=False)
    near = SearchSpec(
        tp=(4, 8),
        cp=(1, 2, 4),
        pp=(16, 32),
        micro_batch_size=(1,),
        vpp=(4, 8),
        zero_stage=(1, 2),
        offload=("none", "activations"),
    )
    return make_plan(replace(job, search=near))


def test_the_published_layout_is_among_those_searched(plan):
    assert plan.rank_of(plan.job.baseline) is not None


def test_its_step_cannot_be_told_from_the_leaders(plan):
    """What keeps it behind is memory, not time."""
    (published,) = named_documents(plan)
    interval, best = published["interval"]["step_time"], int(plan.order[0])
    assert interval["low"] <= plan.estimates.step_high_s[best]
    assert interval["middle"] <= 1.1 * plan.estimates.step_middle_s[best]


def test_it_lacks_what_whole_fp32_gradients_take(plan):
    """64 GiB of activations and 6 of weights leave no room for the 12 GiB that Megatron-Core's
    distributed optimizer keeps whole; in shards they leave some."""
    (published,) = named_documents(plan)
    capacity = published["memory"]["capacity"]
    assert published["verdict"] == "does_not_fit"
    assert published["memory"]["activations"] == pytest.approx(63.6 * GIB, rel=0.01)
    assert published["memory"]["gradients"] == pytest.approx(11.9 * GIB, rel=0.01)
    sharded = replace(plan.job.baseline, zero_stage=2)
    index = plan.generated.candidates.find(sharded)
    assert plan.verdict(index) == "tight"
    assert 0.9 * capacity < plan.estimates.memory_middle_bytes[index] < capacity


def test_its_family_is_among_the_leaders_with_attention_on_the_host(plan):
    """``--fine-grained-activation-offloading`` of attention leaves the room that it lacks."""
    offloaded = replace(plan.job.baseline, offload="activations")
    index, best = plan.generated.candidates.find(offloaded), int(plan.order[0])
    assert plan.estimates.memory_host[index] == pytest.approx(16.2 * GIB, rel=0.02)
    assert plan.verdict(index) == "fits"
    assert plan.estimates.step_low_s[index] <= plan.estimates.step_middle_s[best]
    family = [
        layout
        for layout in map(plan.generated.candidates.layout, plan.order)
        if (layout.tp, layout.cp, layout.pp) == (8, 1, 16)
    ]
    assert plan.rank_of(family[0]) < plan.rank_of(plan.job.baseline)


def test_its_uneven_stages_are_explained(plan):
    index = plan.generated.candidates.find(plan.job.baseline)
    (note,) = stage_notes(plan, [index])
    assert "0:1x126:0 spreads 126 layers over 128 stages" in note
    assert "The embedding has a stage of its own. The head has a stage of its own." in note
