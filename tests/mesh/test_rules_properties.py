"""What holds for the rules of every engine, whatever is known of a layout."""

import string
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshfit.engines import PROFILES
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.facts import facts_of
from meshfit.mesh.generate import divisors, generate
from meshfit.mesh.groups import groups
from meshfit.mesh.rulebook import RULES
from meshfit.mesh.rules import allowed, violations, warnings
from meshfit.mesh.search import SearchSpec
from meshfit.mesh.spec import make_layout
from meshfit.workload.families import read_family
from tests.mesh.strategies import layouts

every_engine = pytest.mark.parametrize("engine", PROFILES)

NAMES = sorted({name for rule in RULES.values() for name in (*rule.needs, *rule.defaults)})
WORDS = {
    "model_type": ("llama", "gpt2"),
    "schedule": ("gpipe", "1f1b", "interleaved_1f1b", "zbv_zero_bubble", "unheard of"),
    "recompute": ("none", "selective", "full"),
    "recompute_method": ("none", "uniform", "block"),
    "cp_method": ("none", "ring", "all_to_all", "a2a+p2p"),
    "key_value_heads_of_layers": ((4, 6), (2, 8)),
    "offload": ("none", "cpu"),
    "quantization_unit": ("block", "group"),
}
FROM_ENGINE = {
    "engine", "schedules", "zero_stages", "recompute_options", "offload_options", "cp_methods",
    "cp_exchange", "vocabulary_multiple", "vocabulary_multiple_per_rank",
}  # fmt: skip
numbers = st.one_of(
    st.integers(1, 64), st.integers(-3, 3), st.sampled_from([128, 4096, 151_936, 10**9, 10**30])
)
partial_facts = st.fixed_dictionaries(
    {},
    optional={
        name: st.sampled_from(WORDS[name]) if name in WORDS else numbers
        for name in NAMES
        if name not in FROM_ENGINE
    },
)


@every_engine
@given(facts=partial_facts)
@settings(deadline=None, max_examples=50)
def test_any_facts_are_answered_and_the_nearest_values_are_legal(engine, facts):
    profile = PROFILES[engine]
    for find in (violations, warnings):
        for violation in find(facts, profile):
            assert violation.message
            if violation.rule == "positive":
                assert violation.nearest == (1,)
                continue
            subject = RULES[violation.rule].subject
            alone = replace(profile, rules=(violation.rule,))
            for value in violation.nearest:
                found = violations(facts | {subject: value}, alone)
                assert violation.rule not in {one.rule for one in found}


@every_engine
@given(facts=partial_facts, data=st.data())
@settings(deadline=None, max_examples=60)
def test_less_knowledge_never_adds_a_violation_of_what_is_still_known(engine, facts, data):
    profile = PROFILES[engine]
    kept = {name: facts[name] for name in data.draw(st.sets(st.sampled_from([*facts, ""]))) if name}
    everything = {violation.rule for violation in violations(facts, profile)}
    for violation in violations(kept, profile):
        rule = RULES.get(violation.rule)
        if rule is not None and set(rule.defaults) & set(facts) <= set(kept):
            assert violation.rule in everything


jobs = st.fixed_dictionaries(
    {
        "world": st.sampled_from([1, 2, 4, 6, 8, 12, 16]),
        "layers": st.integers(1, 9),
        "heads": st.sampled_from([1, 4, 6, 12]),
        "key_value_heads": st.sampled_from([1, 2]),
        "vocab_size": st.sampled_from([500, 501, 512]),
        "sequence_length": st.sampled_from([60, 64, 65]),
        "global_batch_size": st.integers(1, 24),
        "tied": st.booleans(),
    }
)


@every_engine
@given(job=jobs)
@settings(deadline=None, max_examples=25)
def test_the_planner_never_proposes_what_the_check_refuses(
    make_model, make_training, make_topology, engine, job
):
    profile = PROFILES[engine]
    model = make_model(
        layers=job["layers"],
        heads=job["heads"],
        key_value_heads=job["key_value_heads"] if job["heads"] % 2 == 0 else 1,
        vocab_size=job["vocab_size"],
        tied=job["tied"],
    )
    training = make_training(
        sequence_length=job["sequence_length"], global_batch_size=job["global_batch_size"]
    )
    topology = make_topology(per_host=job["world"])
    known = facts_of(model=model, training=training, topology=topology)
    generated = generate(model, training, topology, profile)
    candidates = generated.candidates
    assert generated.considered == len(candidates) + sum(generated.rejected.values())
    shown = np.linspace(0, len(candidates) - 1, min(len(candidates), 40), dtype=np.int64)
    for layout in (candidates.layout(int(index)) for index in shown):
        assert violations(known | facts_of(layout=layout), profile) == ()
    assert allowed(candidates, profile, known).all()


@every_engine
@given(job=jobs, data=st.data())
@settings(deadline=None, max_examples=25)
def test_one_definition_serves_one_layout_and_many(
    *, make_model, make_training, make_topology, engine, job, data
):
    drawn = data.draw(st.lists(layouts, min_size=1, max_size=8))
    known = facts_of(
        model=make_model(layers=job["layers"], heads=job["heads"], key_value_heads=job["heads"]),
        training=make_training(global_batch_size=job["global_batch_size"]),
        topology=make_topology(per_host=job["world"]),
    )
    profile = PROFILES[engine]
    mask = allowed(Candidates.from_layouts(drawn), profile, known)
    one_by_one = [not violations(known | facts_of(layout=layout), profile) for layout in drawn]
    assert mask.tolist() == one_by_one


@every_engine
def test_every_message_can_be_written(engine):
    """A message names facts and details only, so that breaking a rule never breaks the command."""
    for name in PROFILES[engine].rules + PROFILES[engine].warnings:
        rule = RULES[name]
        named = {field for _, field, _, _ in string.Formatter().parse(rule.message) if field}
        inputs = {*rule.needs, *rule.defaults, "engine"}
        if rule.details is not None:
            numbers_of = dict.fromkeys(inputs - {"engine"}, 6)
            inputs |= set(rule.details(**numbers_of))
        assert named <= inputs, name


MOE = {
    "model_type": "mixtral",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 512,
}


def _degrees_of_experts(engine, world):
    """Accelerate has no such axis; the native runner keeps a rank of data beside its experts."""
    return {1} if engine == "accelerate" else set(divisors(world))


@every_engine
@pytest.mark.parametrize("world", [4, 8])
def test_experts_are_placed_as_the_engine_places_them(make_training, make_topology, engine, world):
    profile, model = PROFILES[engine], read_family("moe", MOE)
    training, topology = make_training(), make_topology(per_host=world)
    known = facts_of(model=model, training=training, topology=topology)
    search = SearchSpec(micro_batch_size=(1,), recompute=("none",))
    candidates = generate(model, training, topology, profile, search).candidates
    assert allowed(candidates, profile, known).all()
    layouts_made = [candidates.layout(index) for index in range(len(candidates))]
    degrees = {layout.ep for layout in layouts_made}
    assert degrees == _degrees_of_experts(engine, world)
    for layout in layouts_made:
        assert violations(known | facts_of(layout=layout), profile) == ()
        for axis in ("ep", "edp"):
            members = groups(layout, axis, profile.rank_order, profile.expert_fold)
            assert sorted(members.ravel().tolist()) == list(range(world))


@st.composite
def configs(draw):
    """Configs of every kind: dense, experts (shared ones, a dense layer first), latent attention,
    hybrids of state-space layers; heads that are no power of two, one layer, odd vocabularies."""
    heads = draw(st.sampled_from([1, 4, 6, 8, 12]))
    groups = draw(st.sampled_from([one for one in (1, 2, 3, 4, 6) if heads % one == 0]))
    layers = draw(st.integers(1, 7))
    common = {
        "hidden_size": 32 * heads,
        "intermediate_size": draw(st.sampled_from([96, 128, 160])),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "vocab_size": draw(st.sampled_from([512, 1000, 509])),
        "max_position_embeddings": 4096,
        "tie_word_embeddings": draw(st.booleans()),
    }
    experts = {
        "moe_intermediate_size": draw(st.sampled_from([48, 64])),
        "num_experts_per_tok": 2,
    }
    count = draw(st.sampled_from([4, 6, 8]))
    kind = draw(
        st.sampled_from(["llama", "mixtral", "qwen2_moe", "deepseek_v3", "bamba", "quantised"])
    )
    match kind:
        case "mixtral":
            return common | experts | {"model_type": kind, "num_local_experts": count}
        case "qwen2_moe":
            shared = {"shared_expert_intermediate_size": draw(st.sampled_from([64, 96]))}
            return common | experts | shared | {"model_type": kind, "num_experts": count}
        case "deepseek_v3":
            return (
                common
                | experts
                | {
                    "model_type": kind,
                    "n_routed_experts": count,
                    "n_shared_experts": draw(st.integers(0, 2)),
                    "first_k_dense_replace": draw(st.integers(0, layers)),
                    "n_group": 1,
                    "topk_group": 1,
                    "q_lora_rank": draw(st.sampled_from([None, 24])),
                    "kv_lora_rank": 32,
                    "qk_nope_head_dim": 16,
                    "qk_rope_head_dim": 8,
                    "v_head_dim": 16,
                    "num_key_value_heads": heads,
                }
            )
        case "bamba":
            return common | {
                "model_type": kind,
                "attn_layer_indices": [0],
                "mamba_n_heads": 2 * heads,
                "mamba_d_head": 32,
                "mamba_expand": 2,
                "mamba_n_groups": draw(st.sampled_from([1, 2])),
                "mamba_d_state": 16,
            }
        case "quantised":
            block = {"quant_method": "fp8", "weight_block_size": [32, 32]}
            return common | {"model_type": "llama", "quantization_config": block}
    return common | {"model_type": kind}


@every_engine
@given(
    config=configs(),
    world=st.sampled_from([1, 3, 4, 8, 12]),
    per_host=st.sampled_from([1, 2, 4]),
    sequence_length=st.sampled_from([60, 64, 96]),
    global_batch_size=st.integers(1, 24),
)
@settings(deadline=None, max_examples=40)
def test_the_planner_and_the_check_agree_on_every_kind_of_model(
    *, make_training, make_topology, engine, config, world, per_host, sequence_length,
    global_batch_size,
):  # fmt: skip
    """Nothing proposed is refused, and what is refused is not proposed: a layout of the space's own
    values that the check finds legal is among the proposals."""
    profile, model = PROFILES[engine], read_family("fuzzed", config)
    training = make_training(sequence_length=sequence_length, global_batch_size=global_batch_size)
    hosts = world // per_host if world % per_host == 0 else 1
    topology = make_topology(per_host=world // hosts, hosts=hosts)
    known = facts_of(model=model, training=training, topology=topology)
    search = SearchSpec(micro_batch_size=(1, 2), vpp=(1, 2))
    candidates = generate(model, training, topology, profile, search).candidates
    assert allowed(candidates, profile, known).all()
    proposed = [candidates.layout(index) for index in range(len(candidates))]
    for layout in proposed[:: max(1, len(proposed) // 40)]:
        assert violations(known | facts_of(layout=layout), profile) == ()
    every = Candidates.from_layouts(list(_meshes_of(world, known["num_experts"], profile)))
    legal = np.flatnonzero(allowed(every, profile, known))
    assert {every.layout(int(index)) for index in legal} <= set(proposed)


def _meshes_of(world, experts, profile):
    """Every split of a world over the axes, legal or not, with the engine's own policies."""
    for tp, pp, cp, dp_replicate, ep in product(*[divisors(world)] * 4, divisors(max(1, experts))):
        if world % (tp * pp * cp * dp_replicate) == 0:
            yield make_layout(
                {
                    "tp": tp,
                    "pp": pp,
                    "cp": cp,
                    "dp_replicate": dp_replicate,
                    "dp_shard": world // (tp * pp * cp * dp_replicate),
                    "ep": ep,
                },
                sequence_parallel=profile.sequence_parallel,
                zero_stage=profile.default_zero_stage,
            )
