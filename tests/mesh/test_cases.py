"""Questions people asked in public issues, with the answer that was right (ids b01 to b45).

``data/cases_b.json`` holds each case's input as published and what is expected of which engine.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from meshfit.engines import engine_profile
from meshfit.mesh.generate import generate
from meshfit.mesh.groups import describe_groups, groups
from meshfit.mesh.padding import PaddedHeads, padded_heads, padded_vocabulary
from meshfit.mesh.rules import violations, warnings
from meshfit.mesh.spec import LayoutSpec
from tests.mesh.case_facts import case_facts

CASES = json.loads((Path(__file__).parent / "data" / "cases_b.json").read_text(encoding="utf-8"))
NATIVE = engine_profile("native")


def _expectations(kind: str) -> list[Any]:
    """Every expectation that has the key ``kind``, with its case."""
    return [
        pytest.param(
            case,
            expected,
            id=f"{case['id']} {expected.get('engine', '')} {position}".replace("  ", " "),
        )
        for case in CASES
        for position, expected in enumerate(case["expect"])
        if kind in expected
    ]


def _layout(case: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """The layout asked about: the expectation's own, else the case's (one of several by index)."""
    given = case["input"]
    if "layout" in expected:
        return expected["layout"]
    index = expected.get("index")
    if "candidates" in given:
        return given["candidates"][index]
    if "cases" in given:
        return {key: value for key, value in given["cases"][index].items() if key == "tp"}
    layout = given.get("layout", {})
    return {
        key: value[index] if isinstance(value, list) else value for key, value in layout.items()
    }


def _facts(case: dict[str, Any], expected: dict[str, Any], layout: dict[str, Any]) -> Any:
    facts = case_facts(case, layout, engine_profile(expected["engine"]))
    if "cases" in case["input"]:
        facts["vocab_size"] = case["input"]["cases"][expected["index"]]["vocab"]
    return facts


@pytest.mark.parametrize(("case", "expected"), _expectations("broken"))
def test_a_case_is_answered_as_it_should_be(case, expected):
    profile = engine_profile(expected["engine"])
    facts = _facts(case, expected, _layout(case, expected))
    broken, warned = violations(facts, profile), warnings(facts, profile)
    assert [violation.rule for violation in broken] == expected["broken"]
    assert {*expected.get("warned", [])} <= {warning.rule for warning in warned}
    said = "\n".join(one.message for one in (*broken, *warned))
    assert expected.get("message", "") in said
    values = {key: value for one in (*broken, *warned) for key, value in one.values.items()}
    assert expected.get("values", {}).items() <= values.items()
    if "nearest" in expected:
        assert list(broken[0].nearest) == expected["nearest"]


@pytest.mark.parametrize(("case", "expected"), _expectations("each"))
def test_each_degree_of_a_case_is_legal_or_not(case, expected):
    profile = engine_profile(expected["engine"])
    said = ""
    legal = {}
    for degree in (*expected["valid"], *expected["invalid"]):
        facts = _facts(case, expected, {expected["each"]: degree})
        found = violations(facts, profile)
        legal[degree] = not found
        said += "\n".join(one.message for one in (*found, *warnings(facts, profile)))
        if "warned" in expected:
            assert {one.rule for one in warnings(facts, profile)} == set(expected["warned"])
    assert [degree for degree, fine in legal.items() if fine] == expected["valid"]
    assert expected.get("message", "") in said


@pytest.mark.parametrize(("case", "expected"), _expectations("padded_heads"))
def test_heads_are_padded_so_that_their_groups_stay_whole(case, expected):
    model, right = case["input"]["model"], expected["padded_heads"]
    padded = padded_heads(
        model["num_attention_heads"], model["num_key_value_heads"], right["ranks"]
    )
    assert padded == PaddedHeads(num_attention_heads=right["q"], num_key_value_heads=right["kv"])


def test_every_case_of_the_kind_is_here():
    assert [case["id"] for case in CASES] == [f"b{number:02d}" for number in range(1, 46, 2)]


@pytest.mark.parametrize(
    ("case", "vocab_size", "tp", "multiple", "per_rank", "padded"),
    [
        ("b09", 151552, 6, 64, True, 151680),
        ("b09", 151552, 6, 1, True, 151554),
        ("b11", 250682, 8, 64, False, 250688),
        ("b13", 65535, 2, 64, True, 65536),
        ("b13", 128256, 8, 64, True, 128512),
        ("b43", 151936, 2, 128, True, 152064),
        ("b43, one rank's multiple", 151936, 2, 128, False, 151936),
        ("b43, padded again", 152064, 2, 128, True, 152064),
    ],
)
def test_a_vocabulary_is_padded_to_the_multiple_of_its_engine(
    *, case, vocab_size, tp, multiple, per_rank, padded
):
    assert padded_vocabulary(vocab_size, tp, multiple, per_rank) == padded, case


def test_b19_experts_take_their_ranks_from_tensor_parallel():
    layout = LayoutSpec(tp=4, sp=True, ep=4)
    assert groups(layout, "ep").tolist() == [[0, 1, 2, 3]]
    assert groups(layout, "edp").shape == (4, 1)


@pytest.mark.parametrize("axis", ["dp_shard", "dp_replicate"])
def test_b21_expert_data_parallel_is_what_experts_leave_over(axis):
    """tp=4, pp=2, ep=8 on 32: dp is 4, expert dp is 2, whether or not its ranks share shards."""
    megatron = engine_profile("megatron")
    layout = LayoutSpec(tp=4, sp=True, pp=2, ep=8, **{axis: 4}, zero_stage=int(axis == "dp_shard"))
    assert groups(layout, "dp").shape == (8, 4)
    assert groups(layout, "edp", megatron.rank_order, megatron.expert_fold).shape == (16, 2)


def test_a06_zero_over_one_rank_saves_nothing():
    """deepspeedai/DeepSpeed#237: 8 accelerators, all of them model parallel."""
    facts = {"world": 8, "tp": 8, "data_parallel_size": 1, "zero_stage": 2}
    [warning] = warnings(facts, engine_profile("deepspeed"))
    assert warning.rule == "zero_shards_something"
    assert "zero_stage=2 saves nothing" in warning.message


def test_d14_a_tied_head_on_another_stage_is_a_copy_that_is_summed():
    """NVIDIA/Megatron-LM#299 and others: Qwen2.5-0.5B over two stages."""
    facts = {"tie_word_embeddings": True, "pp": 2, "vocab_size": 151936, "hidden_size": 896}
    [warning] = warnings(facts, engine_profile("megatron"))
    assert "151936 x 896 weights are held on the first and on the last" in warning.message
    assert "one all-reduce a step" in warning.message
    assert violations(facts, NATIVE) == ()
    [refusal] = violations(facts, engine_profile("torchtitan"))
    assert refusal.rule == "tied_embeddings_on_one_stage"


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
