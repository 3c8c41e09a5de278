import string
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshfit.engines import engine_profile
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.facts import DEGREES, facts_of
from meshfit.mesh.rulebook import POSITIVE, RULES
from meshfit.mesh.rules import allowed, refused, violations
from meshfit.mesh.spec import make_layout
from meshfit.workload.training import AdapterSpec, DataSpec, RuntimeSpec
from tests.mesh.strategies import layouts

NATIVE = engine_profile("native")


def broken(**facts):
    return {violation.rule: violation for violation in violations(facts, NATIVE)}


def test_a_message_names_the_rule_the_values_and_all_legal_values():
    violation = broken(num_attention_heads=52, tp=3)["attention_heads_divisible"]
    assert violation.message == (
        "52 attention heads cannot be divided by tp=3; valid tp: [1, 2, 4, 13, 26, 52]"
    )
    assert violation.values == {"num_attention_heads": 52, "tp": 3}
    assert violation.nearest == (1, 2, 4, 13, 26, 52)
    assert violation.module == "attention"


def test_nearest_values_are_one_below_and_one_above():
    violation = broken(global_batch_size=37, data_parallel_size=4, micro_batch_size=2)[
        "global_batch_divisible"
    ]
    assert violation.message == (
        "global_batch 37 is not a multiple of dp*micro_batch = 8; nearest 32 or 40"
    )
    assert violation.nearest == (32, 40)


@given(value=st.integers(1, 50_000), divisor=st.integers(2, 64))
def test_nearest_values_are_the_nearest(value, divisor):
    found = broken(sequence_length=value, tp=divisor, sp=True)
    if value % divisor == 0:
        assert found == {}
    else:
        below = value // divisor * divisor
        nearest = (below, below + divisor) if below else (divisor,)
        assert found["sequence_divisible_by_cp_and_tp"].nearest == nearest


@pytest.mark.parametrize("positions", [1024, 8192, 131_072])
@pytest.mark.parametrize("sequence_length", [200_000, 10**7])
def test_a_bound_is_its_own_nearest_legal_value(positions, sequence_length):
    found = broken(
        learned_positions=positions,
        max_position_embeddings=positions,
        sequence_length=sequence_length,
    )
    assert found["sequence_within_learned_positions"].nearest == (positions,)


def test_nearest_values_are_found_far_from_one():
    violation = broken(sequence_length=1_000_001, tp=2, sp=True)["sequence_divisible_by_cp_and_tp"]
    assert violation.nearest == (1_000_000, 1_000_002)


def test_all_violations_come_at_once(make_model, make_training, make_topology):
    layout = make_layout({"tp": 3, "cp": 2, "offload": "cpu", "recompute": "attention"})
    facts = facts_of(
        model=make_model(),
        training=make_training(),
        topology=make_topology(per_host=8),
        layout=layout,
    )
    assert {violation.rule for violation in violations(facts, NATIVE)} == {
        "world_size",
        "attention_heads_divisible",
        "key_value_heads_divide_or_replicate",
        "intermediate_size_divisible",
        "sequence_divisible_by_cp_and_tp",
        "offload_not_run",
        "recompute_known",
    }


def test_rules_whose_facts_are_missing_are_skipped():
    assert broken(tp=3) == {}
    assert broken(num_attention_heads=52) == {}


@pytest.mark.parametrize("size", [0, -2])
def test_a_size_below_one_is_named_and_divides_nothing(size):
    violations_found = broken(tp=size, num_attention_heads=8)
    assert set(violations_found) == {"positive"}
    assert violations_found["positive"].message == (f"tp must be at least 1, not {size}; nearest 1")


def test_no_value_helps_is_said():
    facts = {"world": 8, "dp_replicate": 1, "dp_shard": 1, "cp": 1, "tp": 3, "pp": 1}
    assert broken(**facts)["world_size"].message.endswith("; no dp_shard makes it legal")
    assert broken(**facts | {"tp": 2})["world_size"].nearest == (4,)


def test_an_option_has_the_engines_own_name():
    profile = replace(NATIVE, option_names={"tp": "--tensor-model-parallel-size"})
    [violation] = violations({"num_attention_heads": 4, "tp": 8}, profile)
    assert violation.option == "--tensor-model-parallel-size"
    assert violation.message.endswith("valid tp: [1, 2, 4] (--tensor-model-parallel-size)")


NATIVE_EXAMPLES = [
    (
        "world_size",
        {"world": 8, "dp_replicate": 1, "dp_shard": 2, "cp": 1, "tp": 2, "pp": 2},
        {"world": 16},
    ),
    (
        "sequence_divisible_by_cp_and_tp",
        {"sequence_length": 8192, "tp": 2},
        {"sequence_length": 8193},
    ),
    (
        "global_batch_divisible",
        {"global_batch_size": 40, "data_parallel_size": 4, "micro_batch_size": 2},
        {"global_batch_size": 37},
    ),
    ("attention_heads_divisible", {"num_attention_heads": 12, "tp": 6}, {"tp": 8}),
    ("key_value_heads_divide_or_replicate", {"num_key_value_heads": 8, "tp": 16}, {"tp": 12}),
    ("intermediate_size_divisible", {"intermediate_size": 96, "tp": 8}, {"tp": 64}),
    ("shared_expert_width_divisible", {"shared_expert_intermediate_size": 96, "tp": 8}, {"tp": 5}),
    ("sequence_parallel_needs_tensor_parallel", {"sp": True, "tp": 2}, {"tp": 1}),
    (
        "sequence_divisible_by_cp_and_tp",
        {"sequence_length": 72, "cp": 2, "tp": 4, "sp": True},
        {"sequence_length": 68},
    ),
    (
        "sequence_divisible_by_exchange",
        {"sequence_length": 12, "cp": 4, "cp_method": "all_to_all"},
        {"cp_method": "none"},
    ),
    ("cp_method_known", {"cp_method": "hierarchical"}, {"cp_method": "a2a+p2p"}),
    (
        "inner_ranks_divide_hierarchical_exchange",
        {"cp_inner": 2, "cp": 8, "cp_method": "hierarchical"},
        {"cp": 2},
    ),
    (
        "inner_ranks_divide_hierarchical_exchange",
        {"cp_inner": 1, "cp": 8, "cp_method": "ring"},
        {"cp_inner": 2},
    ),
    (
        "heads_divisible_by_all_to_all",
        {"num_attention_heads": 12, "cp": 8, "cp_method": "hierarchical", "cp_inner": 4},
        {"cp_method": "all_to_all"},
    ),
    (
        "key_value_heads_divide_or_replicate_by_all_to_all",
        {"num_key_value_heads": 4, "cp": 12, "cp_method": "all_to_all"},
        {"cp": 6},
    ),
    (
        "ring_takes_no_window",
        {"sliding_window": 8, "sequence_length": 16, "cp": 2, "cp_method": "all_gather"},
        {"cp_method": "none"},
    ),
    (
        "ring_takes_no_window",
        {"sliding_window": 16, "sequence_length": 16, "cp": 2, "cp_method": "ring"},
        {"sequence_length": 32},
    ),
    ("layers_fill_stages", {"num_hidden_layers": 8, "pp": 4, "vpp": 2}, {"vpp": 4}),
    ("stage_layers_one_per_stage", {"stage_layers_length": 2, "pp": 2, "vpp": 1}, {"vpp": 2}),
    (
        "stage_layers_cover_model",
        {"stage_layers_sum": 8, "num_hidden_layers": 8},
        {"stage_layers_sum": 7},
    ),
    ("stage_layers_positive", {"stage_layers_min": 1}, {"stage_layers_min": 0}),
    ("schedule_known", {"schedule": "gpipe"}, {"schedule": "zbv"}),
    ("virtual_stages_need_pipeline", {"vpp": 2, "pp": 2}, {"pp": 1}),
    (
        "virtual_stages_need_interleaving",
        {"vpp": 2, "schedule": "interleaved_1f1b"},
        {"schedule": "1f1b"},
    ),
    (
        "interleaving_needs_virtual_stages",
        {"vpp": 2, "schedule": "interleaved_1f1b"},
        {"vpp": 1},
    ),
    (
        "one_f_one_b_fills_pipeline",
        {"schedule": "1f1b", "num_micro_batches": 4, "pp": 4},
        {"num_micro_batches": 3},
    ),
    (
        "interleaving_in_whole_rounds",
        {"schedule": "interleaved_1f1b", "num_micro_batches": 8, "pp": 4},
        {"num_micro_batches": 6},
    ),
    (
        "zero_bubble_in_equal_rounds",
        {"schedule": "interleaved_zero_bubble", "num_micro_batches": 8, "pp": 4},
        {"num_micro_batches": 9},
    ),
    ("v_schedule_needs_two_stages", {"schedule": "zbv_zero_bubble", "vpp": 2}, {"vpp": 1}),
    (
        "dualpipe_fills_stages",
        {"schedule": "dualpipe_v", "num_micro_batches": 8, "pp": 4},
        {"num_micro_batches": 7},
    ),
    (
        "split_backward_keeps_parameters",
        {"schedule": "dualpipe_v", "zero_stage": 2, "dp_shard": 2},
        {"zero_stage": 3},
    ),
    ("zero_stage_known", {"zero_stage": 2}, {"zero_stage": 4}),
    ("zero_stage_matches_dp_shard", {"zero_stage": 3, "dp_shard": 2}, {"zero_stage": 0}),
    ("zero_stage_matches_dp_shard", {"zero_stage": 0, "dp_shard": 1}, {"zero_stage": 3}),
    ("zero1_without_replicas", {"zero_stage": 1, "dp_replicate": 1}, {"dp_replicate": 2}),
    ("expert_parallel_needs_experts", {"num_experts": 8, "ep": 1}, {"num_experts": 0, "ep": 2}),
    ("experts_divisible", {"num_experts": 8, "ep": 1}, {"ep": 3}),
    (
        "experts_fold_into_dense_ranks",
        {"dp_shard": 2, "cp": 1, "tp": 2, "ep": 1, "etp": 1},
        {"ep": 8},
    ),
    ("expert_tensor_parallel_needs_expert_parallel", {"etp": 1, "ep": 1}, {"etp": 2}),
    ("expert_width_cut_within_tensor_parallel", {"etp": 2, "tp": 4}, {"tp": 2, "etp": 4}),
    ("expert_width_divisible", {"moe_intermediate_size": 96, "tp": 2, "ep": 1}, {"tp": 64}),
    (
        "expert_width_divisible_by_etp",
        {"moe_intermediate_size": 96, "etp": 2, "ep": 2},
        {"etp": 64},
    ),
    ("tokens_sent_once", {"ep": 2, "tp": 2, "etp": 1, "sp": True}, {"sp": False}),
    ("tokens_sent_once", {"ep": 2, "tp": 2, "etp": 2, "sp": False}, {"etp": 1}),
    (
        "experts_beyond_plain_replicas",
        {"ep": 2, "zero_stage": 3, "tp": 1, "pp": 1},
        {"zero_stage": 1},
    ),
    ("experts_beyond_plain_replicas", {"ep": 2, "zero_stage": 0, "pp": 2, "tp": 1}, {"pp": 1}),
    ("auxiliary_loss_on_one_stage", {"auxiliary_loss": True, "pp": 1}, {"pp": 2}),
    ("auxiliary_loss_of_whole_sequences", {"auxiliary_loss": True, "cp": 1}, {"cp": 2}),
    (
        "expert_capacity_of_whole_sequences",
        {"expert_capacity": True, "num_experts": 0, "cp": 2},
        {"num_experts": 8},
    ),
    (
        "ring_takes_no_packed_documents",
        {"packed_documents": True, "cp": 2, "cp_method": "all_to_all"},
        {"cp_method": "ring"},
    ),
    (
        "packed_documents_on_one_stage",
        {"packed_documents": False, "pp": 2},
        {"packed_documents": True},
    ),
    ("muon_without_zero1", {"optimizer": "adamw", "zero_stage": 1}, {"optimizer": "muon"}),
    (
        "adapters_beside_whole_matrices",
        {"adapters": True, "model_type": "llama", "tp": 2},
        {"model_type": "gpt2"},
    ),
    ("recompute_known", {"recompute": "full"}, {"recompute": "attention"}),
    ("offload_not_run", {"offload": "none"}, {"offload": "cpu"}),
]


@pytest.mark.parametrize(("rule", "legal", "illegal"), NATIVE_EXAMPLES)
def test_each_rule_of_the_native_engine_holds_and_breaks(rule, legal, illegal):
    assert rule not in broken(**legal)
    assert rule in broken(**legal | illegal)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"optimizer": "muon"}, "muon_without_zero1"),
        ({"adapter": AdapterSpec(rank=4)}, "adapters_beside_whole_matrices"),
        ({"data": DataSpec(source="documents")}, "packed_documents_on_one_stage"),
        ({"data": DataSpec(source="documents")}, "ring_takes_no_packed_documents"),
        (
            {"runtime": RuntimeSpec(expert_capacity_factor=1.5)},
            "expert_capacity_of_whole_sequences",
        ),
    ],
)
def test_rules_see_what_a_training_asks_for(make_training, change, rule):
    layout = {"zero_stage": 1, "tp": 2, "pp": 2, "cp": 2, "cp_method": "ring"}
    others = {"num_experts": 8, "model_type": "gpt2"} | layout
    plain = make_training()
    assert rule not in broken(**facts_of(training=plain) | others)
    assert rule in broken(**facts_of(training=replace(plain, **change)) | others)


def test_gpipe_runs_with_fewer_micro_batches_than_stages():
    assert broken(schedule="gpipe", num_micro_batches=2, pp=4) == {}


@pytest.mark.parametrize("rule", [*RULES.values(), *POSITIVE], ids=lambda rule: rule.name)
def test_a_message_uses_only_facts_that_its_rule_needs(rule):
    used = {name for _, name, _, _ in string.Formatter().parse(rule.message) if name}
    known = {*rule.needs, *rule.defaults, "engine"}
    assert used <= known or rule.details is not None
    assert rule.subject in known
    assert rule.reason


def test_a_profile_names_rules_that_exist():
    assert set(NATIVE.rules) <= set(RULES)


@given(st.lists(layouts, min_size=1, max_size=8))
@settings(deadline=None)
def test_one_definition_serves_one_layout_and_many(make_model, make_training, make_topology, drawn):
    known = facts_of(
        model=make_model(tied=True),
        training=make_training(),
        topology=make_topology(per_host=4),
    )
    mask = allowed(Candidates.from_layouts(drawn), NATIVE, known)
    one_by_one = [not violations(known | facts_of(layout=layout), NATIVE) for layout in drawn]
    assert mask.tolist() == one_by_one


def test_refusals_are_masks_by_rule():
    masks = dict(refused({"num_attention_heads": 8, "tp": np.array([1, 2, 3])}, NATIVE))
    assert masks["attention_heads_divisible"].tolist() == [False, False, True]


@given(st.dictionaries(st.sampled_from(DEGREES), st.integers(-3, 5)))
def test_any_degrees_are_answered_without_an_error(degrees):
    for violation in violations(degrees | {"num_attention_heads": 12, "world": 8}, NATIVE):
        assert violation.as_json()["rule"]
