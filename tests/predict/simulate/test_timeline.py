from dataclasses import replace

import pytest

from meshfit.predict.simulate.play_step import play_step
from meshfit.predict.time.step import with_idle, worked
from meshfit.predict.time.terms import TERMS
from tests.predict.builders import BF16, group, llama, llama_8b, training
from tests.predict.simulate.builders import (
    BATCH,
    EVEN,
    machine,
    timeline,
    unevenly,
    without_transfers,
)

BUBBLE = TERMS.index("bubble")


def share_of_bubble(of):
    """Bubble over the pipeline's own time: the step less what comes once after it."""
    return of.terms()[0, BUBBLE] / of.ends.max(axis=0)[0]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("pp", [2, 4, 8])
def test_the_bubble_of_balanced_stages_is_the_formula(schedule, pp):
    """(p - 1) / (m + p - 1), on stages without embedding and head."""
    made = timeline({"pp": pp, "schedule": schedule, "dp_replicate": 4}, free_transfers=True)
    micro_batches = 16
    assert share_of_bubble(made) == pytest.approx((pp - 1) / (micro_batches + pp - 1), rel=2e-3)


def test_interleaving_divides_the_bubble():
    made = timeline({"pp": 4, "vpp": 2, "dp_replicate": 4}, free_transfers=True)
    assert share_of_bubble(made) == pytest.approx(3 / (2 * 16 + 3), rel=2e-3)


@pytest.mark.parametrize("schedule", ["interleaved_zero_bubble", "zbv_zero_bubble", "dualpipe_v"])
def test_a_split_backward_leaves_less_bubble_than_interleaving(schedule):
    plain = timeline({"pp": 4, "vpp": 2, "dp_replicate": 4}, free_transfers=True)
    split = timeline(
        {"pp": 4, "vpp": 2, "schedule": schedule, "dp_replicate": 4}, free_transfers=True
    )
    assert split.step_s[0] < plain.step_s[0]


@pytest.mark.parametrize(
    "keys",
    [
        {"pp": 4, "dp_replicate": 4},
        {"pp": 4, "dp_replicate": 4, "schedule": "gpipe"},
        {"pp": 4, "tp": 4, "dp_replicate": 2},
        {"pp": 4, "vpp": 2, "dp_replicate": 4},
        {"pp": 8, "dp_replicate": 4, "recompute": "full"},
    ],
)
def test_tiers_agree_on_balanced_pipelines(keys):
    """Within 1 % of the step, and the bubble within 1 % of the step too."""
    spec = training(sequence_length=8192, global_batch_size=64, precision=BF16)
    of = group(replace(llama_8b(), vocab_size=1), spec, keys)
    on = machine(of)
    closed, played = with_idle(worked(of, on), of, on), play_step(of, on).terms()
    assert played.sum() == pytest.approx(closed.sum(), rel=0.01)
    assert abs(played[0, BUBBLE] - closed[0, BUBBLE]) < 0.01 * closed.sum()


def test_tiers_differ_where_the_slow_stage_is_last():
    """The closed form puts the slow rank's sum of gradients after the pipeline's end. Played, the
    last rank sums while the others drain, and the first rank's shorter sum comes last."""
    of = unevenly(group(EVEN, BATCH, {"pp": 4, "dp_replicate": 4}), (7, 7, 7, 11))
    on = without_transfers(machine(of), of)
    closed, played = with_idle(worked(of, on), of, on), play_step(of, on)
    first, last = (played.tails[rank]["all_reduce.dp_replicate"][0] for rank in (0, 3))
    difference = closed[0, BUBBLE] - played.terms()[0, BUBBLE]
    assert difference == pytest.approx(last - first)
    assert difference > 0.1 * closed[0, BUBBLE]


def test_terms_sum_to_the_step_and_no_rank_is_busier_than_the_one_they_are_of():
    made = timeline(
        {"pp": 4, "dp_shard": 4},
        {"pp": 4, "dp_shard": 2, "dp_replicate": 2, "recompute": "full"},
        {"pp": 4, "dp_shard": 2, "tp": 2},
    )
    terms = made.terms()
    assert terms.sum(axis=1) == pytest.approx(made.step_s)
    assert (terms >= 0).all()
    busy = terms.sum(axis=1) - terms[:, BUBBLE]
    assert busy == pytest.approx(made.busy_s.max(axis=0))


def test_without_a_pipeline_nothing_idles():
    made = timeline({"dp_shard": 8}, {"dp_replicate": 8}, {"dp_shard": 4, "tp": 2})
    assert made.terms()[:, BUBBLE] == pytest.approx([0.0, 0.0, 0.0], abs=1e-12)


def test_gathers_of_sharded_states_are_paid_for_every_micro_batch():
    """Gradient accumulation at a fixed global batch trades against other axes (issue 4)."""
    gathered = TERMS.index("all_gather.dp_shard")
    few = timeline({"dp_shard": 8, "micro_batch_size": 4}).terms()[0, gathered]
    many = timeline({"dp_shard": 8, "micro_batch_size": 1}).terms()[0, gathered]
    assert many > 4 * few


def test_clipping_makes_all_ranks_wait_for_the_norm():
    keys = {"pp": 4, "dp_replicate": 4}
    clipped = timeline(keys)
    free = timeline(keys, spec=replace(BATCH, max_grad_norm=None))
    assert clipped.norm_at.shape == (1,)
    assert free.norm_at.shape == (4, 1)
    assert free.step_s[0] <= clipped.step_s[0]


def test_layouts_side_by_side_are_played_apart():
    keys = [{"pp": 4, "dp_shard": 4}, {"pp": 4, "dp_shard": 4, "recompute": "full"}]
    both = timeline(*keys)
    alone = [timeline(one) for one in keys]
    assert both.step_s == pytest.approx([float(one.step_s[0]) for one in alone])


def test_a_heavy_head_is_relieved_by_lighter_ends():
    """One layer less on the last stage, where the head takes as long as two layers."""
    heavy = llama(
        hidden_size=1024, num_layers=32, heads=8, kv_heads=8, intermediate_size=4096, vocab_size=30_000
    )  # fmt: skip
    even = group(heavy, BATCH, {"pp": 4, "dp_replicate": 4})
    lighter = unevenly(even, (8, 9, 9, 6))
    on = machine(even)
    assert play_step(lighter, on).step_s[0] < play_step(even, on).step_s[0]


def test_scatters_at_the_end_hold_their_rank_and_not_the_gradients_it_sends():
    """Whole gradients of every stage are scattered after its last backward (ZeRO-2 in a pipeline);
    the stages before it go on meanwhile, so the step is longer by one rank's scatters at most."""
    keys = {"pp": 8, "vpp": 4, "dp_shard": 4, "zero_stage": 2}
    kept = timeline(keys)
    scattered = max(kept.scatters[actions].sum(axis=0)[0] for actions in kept.waves.by_rank)
    of, axes = kept.group, kept.machine.axes
    alone = replace(axes.dense.shards, degree=of.columns.tp)
    free = play_step(
        of,
        replace(kept.machine, axes=replace(axes, dense=replace(axes.dense, shards=alone))),
    )
    assert scattered > 0
    assert kept.ends.max() < free.ends.max() + 1.5 * scattered
