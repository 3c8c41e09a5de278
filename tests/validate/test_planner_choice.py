from dataclasses import replace

from meshfit.engines.megatron.profile import MEGATRON
from meshfit.engines.native.profile import NATIVE
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.estimate import estimate
from meshfit.validate.planner_choice import with_planned_micro_batch, with_planned_shards
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import TruthRow
from tests.predict.builders import BF16, cluster, llama_8b, training


def job(*, memory_bytes=85_520_809_984, pp=1, global_batch_size=64):
    spec = training(sequence_length=4096, global_batch_size=global_batch_size, precision=BF16)
    return RowJob(
        row=TruthRow({"id": "T-1"}),
        model=llama_8b(),
        training=spec,
        layout=LayoutSpec(tp=4, pp=pp, sp=True, dp_shard=8 // (4 * pp) * 4, zero_stage=1),
        profile=MEGATRON,
        topology=cluster(nodes=4, memory_bytes=memory_bytes),
        assumed=("mbs: micro-batch 1", "recompute: none"),
    )


def test_the_fastest_micro_batch_that_fits_is_chosen_and_said():
    roomy = with_planned_micro_batch(job(memory_bytes=2 * 85_520_809_984))
    assert roomy.layout.micro_batch_size > 1
    assert roomy.assumed == (
        f"mbs: micro-batch {roomy.layout.micro_batch_size}, the planner's choice",
        "recompute: none",
    )
    tight = with_planned_micro_batch(job(memory_bytes=40 * 2**30))
    assert tight.layout.micro_batch_size < roomy.layout.micro_batch_size


def test_nothing_but_the_micro_batch_changes():
    before = job()
    after = with_planned_micro_batch(before)
    assert replace(after.layout, micro_batch_size=1) == before.layout
    assert (after.model, after.training, after.topology) == (
        before.model, before.training, before.topology,
    )  # fmt: skip


def test_a_pipeline_keeps_a_micro_batch_for_every_rank():
    chosen = with_planned_micro_batch(job(pp=2, memory_bytes=10 * 85_520_809_984))
    assert chosen.layout.num_micro_batches(64) >= 2


def test_the_fastest_split_into_replicas_and_shards_is_chosen_and_said():
    before = replace(
        job(memory_bytes=400 * 2**30),
        layout=LayoutSpec(dp_shard=32, zero_stage=3),
        profile=NATIVE,
        assumed=(),
    )
    after = with_planned_shards(before)
    splits = [
        replace(before.layout, dp_replicate=32 // shard, dp_shard=shard)
        for shard in (2, 4, 8, 16, 32)
    ]
    found = estimate(
        before.model,
        before.training,
        before.topology,
        Candidates.from_layouts(splits),
        before.profile,
    )
    assert after.layout == splits[int(found.step_middle_s.argmin())]
    assert after.assumed == (f"dp_shard: {after.layout.dp_shard}, the planner's choice",)


def test_where_nothing_fits_the_least_memory_is_chosen():
    before = replace(
        job(memory_bytes=2**30), layout=LayoutSpec(dp_shard=32, zero_stage=3), profile=NATIVE
    )
    assert with_planned_shards(before).layout.dp_shard == 32
    assert with_planned_micro_batch(job(memory_bytes=2**30)).layout.micro_batch_size == 1


def test_one_rank_has_nothing_to_shard():
    alone = replace(job(), layout=LayoutSpec(zero_stage=0), profile=NATIVE)
    assert with_planned_shards(alone).layout == alone.layout
