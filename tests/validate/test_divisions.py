import pytest

from meshfit.validate.architecture import model_of
from meshfit.validate.divisions import Defaults, global_batch_of, layout_of, recompute_of
from meshfit.validate.rows import NotModelledError
from tests.validate.builders import row


def layout(defaults=None, **columns):
    found = row(**columns)
    return layout_of(found, model_of(found), defaults or Defaults())


def test_a_distributed_optimizer_shards_over_all_data_parallel_ranks():
    found = layout(zero_stage="1", dp="8")
    assert (found.dp_shard, found.dp_replicate, found.zero_stage) == (8, 1, 1)


def test_its_instances_are_replicas():
    found = layout(zero_stage="1", dp="8", dist_opt_instances="2")
    assert (found.dp_shard, found.dp_replicate) == (4, 2)


def test_a_printed_shard_size_leaves_replicas_around_it():
    found = layout(zero_stage="3", dp="128", dp_shard="8", n_gpus="128")
    assert (found.dp_shard, found.dp_replicate, found.zero_stage) == (8, 16, 3)


def test_without_sharding_every_rank_is_a_replica():
    found = layout(zero_stage="0", dp="8")
    assert (found.dp_shard, found.dp_replicate, found.zero_stage) == (1, 8, 0)


def test_context_parallel_ranks_alone_can_share_states():
    assert layout(zero_stage="3", dp="1", cp="8").zero_stage == 3


def test_data_parallelism_follows_from_the_count_where_it_is_not_printed():
    assert layout(dp="", n_gpus="16", tp="4").data_parallel_size == 4


def test_a_count_that_degrees_do_not_divide_says_nothing():
    with pytest.raises(NotModelledError, match="not stated: dp"):
        layout(dp="", n_gpus="6", tp="4")


def test_virtual_stages_interleave():
    found = layout(pp="4", vpp="2", dp="2", pp_schedule="")
    assert (found.vpp, found.schedule) == (2, "interleaved_1f1b")


def test_an_interleaved_schedule_without_a_number_has_the_frameworks():
    assert layout(pp="8", dp="1", pp_schedule="Interleaved 1F1B").vpp == 2


def test_without_a_pipeline_there_are_no_virtual_stages():
    assert layout(pp="1", vpp="1").vpp == 1


def test_a_micro_batch_follows_from_accumulation():
    assert layout(mbs="", gbs="64", dp="8", grad_accum="2").micro_batch_size == 4


def test_a_micro_batch_that_nothing_says_is_the_frameworks():
    defaults = Defaults(micro_batch_size=3)
    assert layout(defaults, mbs="", grad_accum="").micro_batch_size == 3


def test_a_batch_that_nothing_says_is_one_micro_batch_a_rank():
    found = row(gbs="", mbs="2", dp="8")
    assert global_batch_of(found, layout_of(found, model_of(found), Defaults())) == 16


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("none", ("none", 1)),
        ("none (from memory)", ("none", 1)),
        ("full (uniform, 1 layers)", ("full", 1)),
        ("FSDP run: full (from memory)", ("full", 1)),
        ("full/selective", ("full", 1)),
        ("selective (core attention)", ("selective", 1)),
        ("selective op AC (config default)", ("operations", 1)),
        ("selective (every 2nd layer)", ("alternate", 2)),
        ("selective layer", ("alternate", 2)),
        ("", ("block", 1)),
        ("config default", ("block", 1)),
    ],
)
def test_recompute_by_the_words_met(text, policy):
    assert recompute_of(row(recompute=text), default="block") == policy


def test_unknown_words_of_recompute_are_a_reason():
    with pytest.raises(NotModelledError, match="recompute: sometimes"):
        recompute_of(row(recompute="sometimes"), default="none")


def test_given_ends_leave_the_rest_to_the_ranks_between():
    found = layout(n_layers="12", pp="4", dp="2", first_stage_layers="2", last_stage_layers="2")
    assert found.stage_layers == (2, 4, 4, 2)


def test_given_ends_are_shared_out_over_virtual_stages():
    found = layout(n_layers="16", pp="2", vpp="2", dp="4", first_stage_layers="4")
    assert found.stage_layers == (2, 6, 2, 6)


def test_counted_ends_take_a_layer_from_their_stages():
    found = layout(
        n_layers="6", pp="4", vpp="2", dp="2",
        embedding_counts_as_layer="1", loss_counts_as_layer="1",
    )  # fmt: skip
    assert found.stage_layers == (0, 1, 1, 1, 1, 1, 1, 0)


def test_ends_that_do_not_add_up_are_a_reason():
    with pytest.raises(NotModelledError, match="do not fill"):
        layout(n_layers="13", pp="4", dp="2", first_stage_layers="2", last_stage_layers="2")


def test_an_even_pipeline_has_no_stages_of_its_own():
    assert layout(pp="4", dp="2").stage_layers is None


@pytest.mark.parametrize(
    ("words", "schedule", "vpp"),
    [
        ("1F1B", "1f1b", 1),
        ("AFAB", "gpipe", 1),
        ("GPipe", "gpipe", 1),
        ("ZB-H1", "interleaved_zero_bubble", 1),
        ("Zero Bubble", "interleaved_zero_bubble", 1),
        ("Interleaved Zero Bubble", "interleaved_zero_bubble", 2),
        ("ZBV", "zbv_zero_bubble", 2),
        ("DualPipeV", "dualpipe_v", 2),
        ("", "1f1b", 1),
    ],
)
def test_schedules_by_their_words(words, schedule, vpp):
    found = layout(pp="4", dp="2", vpp="", pp_schedule=words)
    assert (found.schedule, found.vpp) == (schedule, vpp)


def test_virtual_stages_make_of_a_plain_schedule_its_looped_one():
    assert layout(pp="4", dp="2", vpp="2", pp_schedule="GPipe").schedule == "looped_bfs"
    assert layout(pp="4", dp="2", vpp="2", pp_schedule="1F1B").schedule == "interleaved_1f1b"


def test_an_unknown_schedule_is_a_reason_and_not_1f1b():
    with pytest.raises(NotModelledError, match="schedule: v-half"):
        layout(pp="4", dp="2", pp_schedule="V-Half")
    assert layout(pp="1", pp_schedule="V-Half").schedule == "1f1b"


def test_more_ranks_than_layers_are_a_reason():
    with pytest.raises(NotModelledError, match="32 layers do not fill 64 ranks"):
        layout(pp="64", dp="1")


def test_more_optimizer_instances_than_ranks_leave_one_shard():
    found = layout(dp="1", n_gpus="1", dist_opt_instances="2")
    assert (found.dp_replicate, found.dp_shard) == (1, 1)
