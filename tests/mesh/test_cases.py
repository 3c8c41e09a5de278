"""Questions people asked in public issues, with the answer that was right (ids b01 to b45)."""

from dataclasses import replace

import pytest

from meshfit.engines import engine_profile
from meshfit.mesh.generate import generate
from meshfit.mesh.groups import describe_groups, groups
from meshfit.mesh.rules import violations
from meshfit.mesh.spec import LayoutSpec, even_stages

NATIVE = engine_profile("native")
FOLDED_EXPERTS = replace(
    NATIVE,
    name="folded-experts",
    rules=tuple(rule for rule in NATIVE.rules if rule != "expert_parallel_not_run"),
)
"""An engine that runs expert parallelism folded into dp_shard x cp x tp, as Megatron-Core does."""
EVEN_STAGES = replace(NATIVE, name="even-stages", rules=("layers_divisible_by_stages",))
"""An engine that only splits layers evenly, as Megatron-Core does when no split is given."""


def messages(facts, profile=NATIVE):
    return [violation.message for violation in violations(facts, profile)]


@pytest.mark.parametrize(
    ("case", "model", "tp", "message"),
    [
        (
            "b01 vllm-project/vllm#414",
            {"num_attention_heads": 52, "num_key_value_heads": 52},
            3,
            "52 attention heads cannot be divided by tp=3; valid tp: [1, 2, 4, 13, 26, 52]",
        ),
        (
            "b03 vllm-project/vllm#4232",
            {"num_attention_heads": 40, "num_key_value_heads": 40},
            6,
            "40 attention heads cannot be divided by tp=6; valid tp: [1, 2, 4, 5, 8, 10, 20, 40]",
        ),
        (
            "b05 MIV-XJTU/FSDrive#21",
            {"num_attention_heads": 12, "num_key_value_heads": 2},
            8,
            "12 attention heads cannot be divided by tp=8; valid tp: [1, 2, 3, 4, 6, 12]",
        ),
    ],
)
def test_heads_that_tp_would_cut_are_refused_with_every_valid_tp(case, model, tp, message):
    assert message in messages(model | {"tp": tp}), case


def test_b07_key_value_heads_below_tp_are_refused_where_they_are_not_replicated():
    """huggingface/transformers#48307."""
    [message] = messages({"num_attention_heads": 32, "num_key_value_heads": 4, "tp": 8})
    assert message == (
        "4 key/value heads cannot be divided by tp=8: native does not replicate KV heads; "
        "valid tp: [1, 2, 4]"
    )


@pytest.mark.parametrize(
    ("case", "vocab_size", "tp"),
    [
        ("b09 vllm-project/vllm#31474", 151552, 6),
        ("b11 vllm-project/vllm#440", 250682, 8),
        ("b13 hpcaitech/ColossalAI#6167", 65535, 2),
    ],
)
def test_a_vocabulary_that_needs_padding_is_refused_where_nothing_is_padded(case, vocab_size, tp):
    [message] = messages({"vocab_size": vocab_size, "tp": tp})
    assert message.startswith(
        f"vocab_size {vocab_size} cannot be divided by tp={tp}: native does not pad"
    ), case


def test_b17_layers_that_do_not_divide_get_an_uneven_split():
    """modelscope/ms-swift#5737: 46 layers over 4 stages."""
    facts = {"num_hidden_layers": 46, "pp": 4, "vpp": 1}
    [message] = messages(facts, EVEN_STAGES)
    assert "46 layers cannot be divided evenly over pp*vpp = 4*1 stages" in message
    assert "give the layers of every stage (stage_layers)" in message
    assert even_stages(46, 4) == (11, 12, 12, 11)
    assert messages(facts) == []


def test_b19_experts_take_their_ranks_from_tensor_parallel():
    """NVIDIA-NeMo/Megatron-Bridge#546: tp=4, ep=4, etp=1 on 4 accelerators is legal."""
    layout = LayoutSpec(tp=4, sp=True, ep=4)
    facts = {"world": 4, "num_experts": 128, "dp_replicate": 1, "dp_shard": 1, "cp": 1}
    assert messages(facts | {"pp": 1, "tp": 4, "ep": 4, "etp": 1}, FOLDED_EXPERTS) == []
    assert groups(layout, "ep").tolist() == [[0, 1, 2, 3]]
    assert groups(layout, "edp").shape == (4, 1)


def test_b21_expert_data_parallel_is_what_experts_leave_over():
    """NVIDIA-NeMo/Megatron-Bridge#2530: tp=4, pp=2, ep=8 on 32: dp is 4, expert dp is 2."""
    layout = LayoutSpec(tp=4, sp=True, pp=2, dp_shard=4, zero_stage=3, ep=8)
    facts = {"world": 32, "num_experts": 128, "dp_replicate": 1, "dp_shard": 4, "cp": 1}
    assert messages(facts | {"pp": 2, "tp": 4, "ep": 8, "etp": 1}, FOLDED_EXPERTS) == []
    assert groups(layout, "dp").shape == (8, 4)
    assert groups(layout, "edp").shape == (16, 2)


def test_b23_a_sequence_that_tp_cannot_split_does_not_pass_in_silence():
    """pytorch/torchtitan#1306."""
    [message] = messages({"sequence_length": 8193, "tp": 2, "sp": True})
    assert message.endswith("nearest 8192 or 8194")


def test_b37_a_global_batch_is_neither_truncated_nor_padded():
    """mosaicml/examples#41 and PsycheFoundation/nousnet#253."""
    facts = {"global_batch_size": 37, "micro_batch_size": 2, "dp_replicate": 4, "dp_shard": 1}
    assert messages(facts) == [
        "global_batch 37 is not a multiple of dp*micro_batch = 8; nearest 32 or 40"
    ]


def test_b39_1f1b_needs_as_many_micro_batches_as_stages_and_gpipe_does_not():
    """pytorch/torchtitan#775 and pytorch/pytorch#144702."""
    facts = {"pp": 4, "num_micro_batches": 2}
    [message] = messages(facts | {"schedule": "1f1b"})
    assert "needs at least pp=4 micro-batches; you have 2" in message
    assert messages(facts | {"schedule": "gpipe"}) == []


def test_b41_interleaving_needs_a_multiple_of_pp():
    """NVIDIA-NeMo/Speech#14288 and pytorch/PiPPy#1048."""
    [message] = messages(
        {"pp": 6, "vpp": 2, "schedule": "interleaved_1f1b", "num_micro_batches": 3}
    )
    assert message.startswith(
        "interleaved schedule needs at least pp=6 micro-batches (and a multiple of 6); "
        "you have 3 = global_batch/(dp*micro_batch)"
    )


def test_b45_hybrid_sharding_is_proposed_and_says_which_groups_leave_the_node(
    make_model, make_training, make_topology
):
    """pytorch/pytorch#117470 and saforem2/ezpz#214: 2 nodes of 12."""
    topology = make_topology(per_host=12, hosts=2)
    generated = generate(make_model(), make_training(global_batch_size=24), topology, NATIVE)
    candidates = generated.candidates
    proposed = [candidates.layout(index) for index in range(len(candidates))]
    flat = LayoutSpec(dp_shard=24, zero_stage=3)
    hybrid = LayoutSpec(dp_replicate=2, dp_shard=12, zero_stage=3)
    with_tp = LayoutSpec(dp_shard=12, tp=2, sp=True, zero_stage=3)
    assert {flat, hybrid, with_tp} <= set(proposed)

    def leaves_node(layout):
        placed = describe_groups(layout, topology)
        return {axis: any(p.leaves_host for p in placed if p.axis == axis) for axis in
                dict.fromkeys(p.axis for p in placed)}  # fmt: skip

    assert leaves_node(flat) == {"dp_shard": True}
    assert leaves_node(hybrid) == {"dp_replicate": True, "dp_shard": False}
    assert leaves_node(with_tp) == {"dp_shard": True, "tp": False}
