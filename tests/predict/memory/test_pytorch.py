from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.engines.native.profile import NATIVE
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.memory.moments import MOMENTS
from meshfit.predict.memory.pytorch import rank_memory
from meshfit.predict.shape.held import rank_held
from meshfit.predict.shape.layer_basis import autocast
from meshfit.workload.blocks.feed_forward import MlpSpec, MoeSpec
from meshfit.workload.counts import total_parameters
from meshfit.workload.model import LayerSpec
from meshfit.workload.training import AdapterSpec, DataSpec, RuntimeSpec
from tests.predict.builders import BF16, FP32, group, llama, llama_8b, pipeline, training

GIB = 2**30


def memory(model, spec, keys, *, rank=0, profile=NATIVE, numerics=None):
    of = group(model, spec, keys, profile=profile, numerics=numerics)
    return rank_memory(of.pipeline.ranks[rank], of)


def states(found):
    return sum(found.categories[name][0] for name in ("parameters", "gradients", "optimizer"))


def test_sharded_states_of_llama_8b_are_16_bytes_a_parameter_over_8_ranks():
    spec = training(sequence_length=1, global_batch_size=8, precision=BF16)
    model = llama_8b()
    found = memory(model, spec, {"dp_shard": 8})
    assert total_parameters(model) == 8_030_261_248
    assert states(found) == pytest.approx(16 * 8_030_261_248 / 8)


@given(
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2, 3, 4]),
    dp_shard=st.sampled_from([2, 4, 8]),
    layers=st.integers(4, 9),
)
def test_parameters_over_all_ranks_are_those_of_the_model(tp, pp, dp_shard, layers):
    model = llama(num_layers=layers, kv_heads=4)
    keys = {"tp": tp, "pp": pp, "dp_shard": dp_shard}
    spec = training(global_batch_size=8 * dp_shard)
    held = sum(
        memory(model, spec, keys, rank=rank).categories["parameters"][0] for rank in range(pp)
    )
    # every tp rank holds the norms; the rest is held once
    norms = (2 * layers + 1) * model.hidden_size
    expected = 4 * (total_parameters(model) + (tp - 1) * norms)
    assert held * tp * dp_shard == pytest.approx(expected)


@pytest.mark.parametrize(("tp", "whole"), [(2, False), (4, True)])
def test_weights_of_key_heads_that_ranks_share_are_kept_whole_by_each(tp, whole):
    """The runner's ``SharedHeads``: two key heads over four ranks."""
    model = llama(kv_heads=2)
    held = memory(model, training(), {"tp": tp}).categories["parameters"][0] / 4
    keys_and_values = 4 * 2 * 2 * 32 * 128  # layers, k and v, heads, head size, hidden size
    norms = (2 * 4 + 1) * 128
    cut = total_parameters(model) - norms - keys_and_values
    assert held == cut / tp + norms + keys_and_values / (1 if whole else tp)


def test_what_the_fullest_rank_of_experts_receives_grows_with_the_assumed_imbalance():
    """One layer of two choices of eight experts: the copies and what their MLPs keep, in fp32."""
    expert = MlpSpec(intermediate_size=32, gated=True)
    moe = MoeSpec(num_experts=8, experts_per_token=2, expert=expert)
    attention = llama().layers[0].attention
    layer = LayerSpec(blocks=(("self_attn", attention), ("mlp", moe)))
    model = replace(llama(), layers=(layer,) * 4)

    def activations(imbalance, keys):
        runtime = RuntimeSpec(expert_imbalance=imbalance)
        return memory(model, training(runtime=runtime), keys).categories["activations"][0]

    spread = {"dp_shard": 4, "ep": 4}
    copies_bytes = 2 * 4 * (128 + 4 * 32)  # two choices: the input; gate, activated, up, product
    grown = activations(3.0, spread) - activations(1.0, spread)
    # The last layer's backward has freed the input of its last matmul.
    assert grown == 2 * 128 * (4 * copies_bytes - 2 * 4 * 32)
    alone = {"dp_shard": 4}
    assert activations(3.0, alone) == activations(1.0, alone)


def test_packed_documents_take_a_mask_and_a_copy_of_keys_a_layer():
    """Four layers, fp32, a sequence of 128: the mask is 128 x 128, two key heads of 32 become four."""
    documents = training(data=DataSpec(source="documents", path="lessons.jsonl"))
    plain, packed = (
        memory(llama(), spec, {"dp_replicate": 4}).categories["activations"][0]
        for spec in (training(), documents)
    )
    assert packed - plain == 4 * 4 * (128 * 128 + 2 * 128 * 2 * 32)


def test_of_two_factors_under_tp_the_one_on_the_divided_side_is_divided():
    """Rank 4 beside q (by columns) and o (by rows) of 128 x 128, four layers."""
    adapted = training(adapter=AdapterSpec(rank=4, targets=("q_proj", "o_proj")))
    found = memory(llama(), adapted, {"tp": 2}).categories["optimizer"][0]
    assert found == 2 * 4 * (4 * 2 * (4 * 128 / 2 + 4 * 128))


def test_frozen_weights_under_tp_peak_where_the_last_layer_makes_its_output():
    """``examples/lora``, tp=4: the dry run's peak is 10,129,928 bytes in the last reduce-scatter. Beyond
    what is kept there are the gathered input, the summands twice, two shares, the product's factor;
    masks as booleans and rotary tables (2.6 %) are left out."""
    adapted = training(
        sequence_length=256,
        global_batch_size=8,
        adapter=AdapterSpec(rank=8, targets=("q_proj", "k_proj", "v_proj", "o_proj")),
        data=DataSpec(source="documents", path="lessons.jsonl"),
    )
    model = llama(intermediate_size=384, vocab_size=256)
    found = memory(model, adapted, {"tp": 4, "micro_batch_size": 2})
    assert MOMENTS[found.moment[0]] == "forward_end"
    hidden, tokens = 4 * 128, 2 * 256
    passing = tokens * (3 * hidden + 2 * hidden / 4 + 4 * 384 / 4)
    assert found.categories["temporary"][0] == passing
    assert found.allocated[0] == pytest.approx(10_129_928, rel=0.03)


def test_frozen_weights_are_stored_as_trained_ones_by_the_runner():
    """bf16 mixed: FSDP2 casts them when it gathers them."""
    adapted = training(precision=BF16, adapter=AdapterSpec(rank=4), global_batch_size=8)
    model = llama()
    stored = memory(model, adapted, {"dp_shard": 8}).categories["parameters"][0]
    assert stored >= 4 * total_parameters(model) / 8
    in_compute_type = replace(NATIVE, frozen_as_trained=False)
    less = memory(model, adapted, {"dp_shard": 8}, profile=in_compute_type).categories["parameters"]
    assert stored - less[0] == 2 * total_parameters(model) / 8


@given(
    shards=st.lists(st.sampled_from([2, 4, 8, 16, 32]), min_size=2, max_size=5, unique=True),
    zero=st.sampled_from([1, 2, 3]),
)
def test_more_shards_never_hold_more_states(shards, zero):
    keys = [{"dp_shard": shard, "zero_stage": zero} for shard in sorted(shards)]
    of = group(llama(), training(global_batch_size=64), *keys)
    found = rank_memory(of.pipeline.ranks[0], of)
    for name in ("parameters", "gradients", "optimizer"):
        assert (np.diff(found.categories[name]) <= 0).all()


@given(
    tp=st.sampled_from([1, 2]),
    pp=st.sampled_from([1, 2, 4]),
    micro_batch_size=st.sampled_from([1, 2, 4]),
    schedule=st.sampled_from(["gpipe", "1f1b"]),
)
def test_recomputation_never_raises_the_peak(tp, pp, micro_batch_size, schedule):
    keys = {"tp": tp, "pp": pp, "micro_batch_size": micro_batch_size, "schedule": schedule}
    spec = training(global_batch_size=16)
    for rank in range(pp):
        kept = memory(llama(), spec, keys, rank=rank)
        recomputed = memory(llama(), spec, keys | {"recompute": "full"}, rank=rank)
        assert recomputed.allocated[0] <= kept.allocated[0]


@given(pp=st.sampled_from([2, 4]), schedule=st.sampled_from(["gpipe", "1f1b"]))
def test_the_first_stage_keeps_at_least_the_activations_of_the_last(pp, schedule):
    """Case a26."""
    model = llama(num_layers=8)
    spec = training(global_batch_size=16)
    first = memory(model, spec, {"pp": pp, "schedule": schedule}, rank=0)
    last = memory(model, spec, {"pp": pp, "schedule": schedule}, rank=pp - 1)
    head = 3.05 * 4 * model.hidden_size * 128 * 16  # the final norm and the head's input
    assert first.categories["activations"][0] + head >= last.categories["activations"][0]
    if schedule == "1f1b":
        assert first.categories["activations"][0] > last.categories["activations"][0]


def test_zero_saves_nothing_when_one_rank_shards():
    """Case a06: 40B parameters over tp 8 with a data-parallel size of 1 are 74.5 GiB of states
    whatever the ZeRO stage says."""
    model = llama(
        hidden_size=8192,
        heads=64,
        kv_heads=64,
        num_layers=48,
        intermediate_size=22_016,
        vocab_size=32_000,
    )
    model = replace(model, layers=model.layers[:1] * 49)
    spec = training(sequence_length=1, global_batch_size=1, precision=BF16)
    without = memory(model, spec, {"tp": 8, "zero_stage": 0})
    staged = memory(model, spec, {"tp": 8, "zero_stage": 2})
    assert states(staged) == states(without)
    per_parameter = states(without) * 8 / total_parameters(model)
    assert per_parameter == pytest.approx(16, rel=1e-3)
    assert 40e9 * per_parameter / 8 / GIB == pytest.approx(74.5, rel=1e-3)


def test_adam_over_all_parameters_at_once_peaks_in_the_optimizers_step():
    """Case a10: Llama-2-7B over 8 x 16 GB holds 12.55 GiB of states; the step that makes the
    moments and foreach's temporaries is where it fails."""
    model = llama(
        hidden_size=4096, heads=32, kv_heads=32, num_layers=32, intermediate_size=11_008, vocab_size=32_000
    )  # fmt: skip
    assert total_parameters(model) == pytest.approx(6.738e9, rel=1e-3)
    spec = training(sequence_length=256, global_batch_size=8, precision=BF16)
    foreach = replace(NATIVE, optimizer_temporary_moments=1)
    found = memory(model, spec, {"dp_shard": 8, "recompute": "full"}, profile=foreach)
    assert MOMENTS[found.moment[0]] == "optimizer"
    assert states(found) / GIB == pytest.approx(12.55, abs=0.01)
    assert found.allocated[0] > states(found) * 1.2


def test_a_pipeline_is_as_heavy_as_its_heaviest_stage():
    """Case a18: 8 layers split 1, 2, 2, 3: embedding on the first stage, final norm and head on
    the last, never the total over pp."""
    model = llama(num_layers=8)
    layout = LayoutSpec(pp=4, stage_layers=(1, 2, 2, 3))
    held = [rank_held(shape, model, None).all.total for shape in pipeline(layout, model).ranks]
    layer = 4 * 128 * 128 - 2 * 64 * 128 + 3 * 128 * 352 + 2 * 128
    vocabulary = 512 * 128
    assert held == [vocabulary + layer, 2 * layer, 2 * layer, 3 * layer + 128 + vocabulary]
    assert sum(held) == total_parameters(model)
    assert max(held) > 1.3 * sum(held) / 4


def test_a_tied_head_is_counted_once_on_one_stage_and_twice_on_two():
    model = llama(tied=True)
    vocabulary = 512 * 128
    whole = sum(
        rank_held(s, model, None).all.total for s in pipeline(LayoutSpec(pp=1), model).ranks
    )
    split = sum(
        rank_held(s, model, None).all.total for s in pipeline(LayoutSpec(pp=2), model).ranks
    )
    assert whole == total_parameters(model)
    assert split == whole + vocabulary


def test_logits_of_gpipe_are_held_for_every_micro_batch_and_of_1f1b_for_one():
    spec = training(global_batch_size=8)
    model, entries = llama(vocab_size=2048), 128 * 2048
    gpipe = memory(model, spec, {"pp": 4, "schedule": "gpipe"}, rank=3)
    one = memory(model, spec, {"pp": 4}, rank=3)
    assert MOMENTS[gpipe.moment[0]] == "loss"
    assert gpipe.categories["logits_and_loss"][0] == entries * (8 * 8 + 8)
    assert one.categories["logits_and_loss"][0] <= entries * 16


def test_ddp_holds_its_gradients_in_buckets_before_the_first_backward():
    spec = training(global_batch_size=4)
    replicated = memory(llama(vocab_size=16_384), spec, {"dp_replicate": 4})
    assert MOMENTS[replicated.moment[0]] in ("loss", "backward_start")
    assert replicated.categories["gradients"][0] == replicated.categories["parameters"][0]
    copied = replace(NATIVE, gradients_live_in_buckets=False)
    twice = memory(llama(), spec, {"dp_replicate": 4}, profile=copied)
    assert twice.categories["communication"][0] == twice.categories["parameters"][0]


def test_sequence_parallelism_divides_what_lies_between_blocks():
    spec = training()
    with_sp = memory(llama(kv_heads=4), spec, {"tp": 4, "sp": True})
    without = memory(llama(kv_heads=4), spec, {"tp": 4, "sp": False})
    assert with_sp.categories["activations"][0] < without.categories["activations"][0]


def test_autocast_keeps_a_copy_of_the_weights_that_casting_keeps_as_communication():
    model, spec = llama(), training(precision=BF16)
    matmuls = 4 * (4 * 128 * 128 - 2 * 64 * 128 + 3 * 128 * 352) + 512 * 128
    with_copies = memory(model, spec, {}, numerics=autocast(BF16))
    fp32 = memory(model, training(precision=FP32), {})
    assert with_copies.categories["communication"][0] == 0
    assert with_copies.categories["activations"][0] > 2 * matmuls
    assert fp32.categories["parameters"][0] == with_copies.categories["parameters"][0]


@given(
    keys=st.sampled_from(
        [{}, {"tp": 2}, {"pp": 2}, {"dp_shard": 4}, {"pp": 2, "vpp": 2}, {"dp_replicate": 2, "tp": 2}]
    ),
    precision=st.sampled_from([FP32, BF16]),
)  # fmt: skip
def test_every_category_is_at_least_zero(keys, precision):
    of = group(llama(), training(precision=precision), keys)
    for shape in of.pipeline.ranks:
        for values in rank_memory(shape, of).categories.values():
            assert (values >= 0).all()


@pytest.mark.parametrize(("micro_batches", "share"), [(1, 0.0), (2, 1.0)])
def test_an_optimizer_in_backward_keeps_no_gradients_of_a_step_of_one_micro_batch(
    micro_batches, share
):
    runtime = RuntimeSpec(optimizer_in_backward=True)
    keys = {"global_batch_size": micro_batches, "precision": BF16}
    usual = memory(llama_8b(), training(**keys), {"recompute": "full"})
    freed = memory(llama_8b(), training(**keys, runtime=runtime), {"recompute": "full"})
    assert freed.categories["gradients"][0] == share * usual.categories["gradients"][0]
    assert usual.categories["gradients"][0] == 4 * total_parameters(llama_8b())


def test_a_paged_optimizer_has_its_states_on_the_host():
    spec = training(global_batch_size=1, precision=BF16)
    paged = replace(spec, runtime=RuntimeSpec(paged_optimizer=True))
    usual, moved = (memory(llama_8b(), one, {}) for one in (spec, paged))
    assert moved.categories["optimizer"][0] == 0
    assert moved.host[0] == usual.categories["optimizer"][0] == 8 * total_parameters(llama_8b())
    assert moved.categories["parameters"] == usual.categories["parameters"]
