import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshfit.engines import PROFILES, engine_profile
from meshfit.errors import InputError
from meshfit.mesh.candidates import RECOMPUTE, SCHEDULES
from meshfit.mesh.facts import facts_of
from meshfit.mesh.generate import divisors, generate
from meshfit.mesh.rules import violations
from meshfit.mesh.search import SearchSpec
from meshfit.mesh.spec import LayoutSpec

NATIVE = engine_profile("native")


def layouts_of(generated):
    candidates = generated.candidates
    return [candidates.layout(index) for index in range(len(candidates))]


def recomputed_layers(recompute, layers_of_stage):
    """Numbers of layers that are worth a look under a policy."""
    if recompute == "alternate":
        return {2}
    if recompute != "block":
        return {1}
    return {1} | {count for count in (2, layers_of_stage // 2) if 1 < count < layers_of_stage}


EVERYTHING = SearchSpec(micro_batch_size=(1, 2, 3, 4), recompute=RECOMPUTE)
SOME_POLICIES = SearchSpec(micro_batch_size=(1, 2), recompute=("none", "alternate"))
"""Worlds of more ranks have too many layouts for nested loops over all policies."""


def brute_force(model, training, topology, search):
    """Every canonical layout that breaks no rule, by nested loops over plain numbers."""
    known = facts_of(model=model, training=training, topology=topology)
    world = topology.num_accelerators
    degrees = range(1, world + 1)
    return {
        layout
        for pp, dp_replicate, dp_shard, cp, tp in itertools.product(degrees, repeat=5)
        if pp * dp_replicate * dp_shard * cp * tp == world
        for vpp, schedule in itertools.product((1, 2, 4), SCHEDULES)
        if pp > 1 or (vpp == 1 and schedule == "1f1b")
        for zero_stage in (0, 1, 2, 3)
        if (dp_shard > 1) == (zero_stage > 0)
        for ep, micro_batch_size, recompute in itertools.product(
            (1, 2), search.micro_batch_size, search.recompute
        )
        for recompute_layers in recomputed_layers(recompute, model.num_hidden_layers // (pp * vpp))
        for layout in [
            LayoutSpec(
                dp_replicate=dp_replicate,
                dp_shard=dp_shard,
                tp=tp,
                sp=tp > 1,
                cp=cp,
                pp=pp,
                vpp=vpp,
                schedule=schedule,
                ep=ep,
                zero_stage=zero_stage,
                micro_batch_size=micro_batch_size,
                recompute=recompute,
                recompute_layers=recompute_layers,
            )
        ]
        if not violations(known | facts_of(layout=layout), NATIVE)
    }


@pytest.mark.parametrize(
    ("world", "model_keys"),
    [
        (1, {}),
        (2, {}),
        (4, {}),
        (6, {}),
        (3, {"layers": 3, "heads": 6, "key_value_heads": 6}),
        (4, {"layers": 3, "heads": 6, "key_value_heads": 6}),
        (4, {"tied": True}),
        (4, {"model_type": "gpt2"}),
    ],
)
def test_exactly_the_legal_layouts_are_generated(
    make_model, make_training, make_topology, world, model_keys
):
    given_parts = (
        make_model(**model_keys),
        make_training(global_batch_size=4),
        make_topology(per_host=world),
    )
    search = EVERYTHING if world <= 3 else SOME_POLICIES
    generated = layouts_of(generate(*given_parts, NATIVE, search))
    assert len(set(generated)) == len(generated)
    assert set(generated) == brute_force(*given_parts, search)


MOST_CHECKED = 50
"""Layouts of a space that are held against the rules one by one, spread over it."""

jobs = st.fixed_dictionaries(
    {
        "world": st.integers(1, 24),
        "layers": st.integers(1, 9),
        "heads": st.sampled_from([1, 4, 6, 12]),
        "vocab_size": st.sampled_from([500, 501, 512]),
        "sequence_length": st.sampled_from([60, 64, 65]),
        "global_batch_size": st.integers(1, 24),
    }
)


@given(jobs)
@settings(deadline=None)
def test_the_planner_never_proposes_what_the_check_refuses(
    make_model, make_training, make_topology, job
):
    model = make_model(
        layers=job["layers"],
        heads=job["heads"],
        key_value_heads=job["heads"],
        vocab_size=job["vocab_size"],
    )
    training = make_training(
        sequence_length=job["sequence_length"], global_batch_size=job["global_batch_size"]
    )
    topology = make_topology(per_host=job["world"])
    known = facts_of(model=model, training=training, topology=topology)
    generated = generate(model, training, topology, NATIVE)
    every = max(1, len(generated.candidates) // MOST_CHECKED)
    for index in range(0, len(generated.candidates), every):
        layout = generated.candidates.layout(index)
        assert violations(known | facts_of(layout=layout), NATIVE) == ()
    assert generated.considered == len(generated.candidates) + sum(generated.rejected.values())


def test_each_rejected_layout_is_counted_under_one_rule(make_model, make_training, make_topology):
    generated = generate(
        make_model(heads=9, key_value_heads=3),
        make_training(),
        make_topology(per_host=2),
        NATIVE,
        SearchSpec(cp=(1,), micro_batch_size=(1,), recompute=("none",), pp=(1,)),
    )
    # dp_replicate=2; dp_shard=2 at stages 1, 2, 3; tp=2, which would cut one of nine heads
    assert generated.considered == 5
    assert generated.rejected == {"attention_heads_divisible": 1}
    assert [layout.label for layout in layouts_of(generated)] == [
        "dp_shard=2,zero_stage=1",
        "dp_shard=2,zero_stage=2",
        "dp_shard=2,zero_stage=3",
        "dp_replicate=2",
    ]


def test_bounds_and_pins_are_kept(make_model, make_training, make_topology):
    search = SearchSpec(
        tp=(2,),
        pp=(1, 2),
        sp=(False, True),
        schedule=("gpipe",),
        zero_stage=(3,),
        micro_batch_size=(1, 2),
        recompute=("full",),
    )
    generated = layouts_of(
        generate(make_model(), make_training(), make_topology(per_host=8), NATIVE, search)
    )
    assert generated
    for layout in generated:
        assert layout.tp == 2
        assert layout.pp in (1, 2)
        assert layout.schedule == ("gpipe" if layout.pp > 1 else "1f1b")
        assert layout.zero_stage == (3 if layout.dp_shard > 1 else 0)
        assert layout.micro_batch_size in (1, 2)
        assert layout.recompute == "full"
    assert {layout.sp for layout in generated} == {False, True}


def test_a_bound_that_no_mesh_meets_leaves_nothing(make_model, make_training, make_topology):
    generated = generate(
        make_model(), make_training(), make_topology(per_host=8), NATIVE, SearchSpec(tp=(3,))
    )
    assert len(generated.candidates) == 0
    assert generated.considered == 0


def test_an_unknown_policy_is_refused_with_the_nearest(make_model, make_training, make_topology):
    with pytest.raises(InputError, match=r"search.schedule: unknown .* 'gpip'; .* 'gpipe'"):
        generate(
            make_model(),
            make_training(),
            make_topology(per_host=2),
            NATIVE,
            SearchSpec(schedule=("gpip",)),
        )


def test_offload_is_searched_where_it_is_asked_for(make_model, make_training, make_topology):
    def layouts(**bounds):
        search = SearchSpec(pp=(1,), micro_batch_size=(1,), recompute=("none",), **bounds)
        job = make_model(), make_training(), make_topology(per_host=2)
        return layouts_of(generate(*job, engine_profile("megatron"), search))

    unasked = layouts()
    asked = layouts(offload=("none", "cpu", "activations"))
    assert {layout.offload for layout in unasked} == {None}
    assert {layout.offload for layout in asked} == {None, "cpu", "activations"}
    assert len(asked) == 3 * len(unasked)
    refused = generate(
        make_model(),
        make_training(),
        make_topology(per_host=2),
        NATIVE,
        SearchSpec(offload=("none", "cpu")),
    )
    assert refused.rejected["offload_not_run"] > 0


def test_exchanges_of_context_parallelism_are_searched_where_it_is_asked_for(
    make_model, make_training, make_topology
):
    def layouts(**bounds):
        search = SearchSpec(pp=(1,), micro_batch_size=(1,), recompute=("none",), **bounds)
        job = make_model(), make_training(), make_topology(per_host=4)
        return layouts_of(generate(*job, NATIVE, search))

    unasked = layouts()
    asked = layouts(cp_method=("ring", "all_to_all"))
    assert {layout.cp_method for layout in unasked} == {None}
    divided = [layout for layout in unasked if layout.cp > 1]
    assert divided
    assert {layout.cp_method for layout in asked if layout.cp > 1} == {"ring", "all_to_all"}
    assert len(asked) == len(unasked) + len(divided)


def test_the_space_of_a_large_job_takes_well_under_a_second(
    make_model, make_training, make_topology
):
    """A 405B-shaped model on 16,384 GPUs, micro-batches 1 to 8, every policy."""
    model = make_model(
        layers=126, heads=128, key_value_heads=8, vocab_size=128256, intermediate_size=53248
    )
    training = make_training(sequence_length=8192, global_batch_size=2048)
    topology = make_topology(per_host=8, hosts=2048)
    started = time.perf_counter()
    generated = generate(
        model, training, topology, NATIVE, SearchSpec(micro_batch_size=(1, 2, 4, 8))
    )
    assert time.perf_counter() - started < 1.0
    assert generated.considered > 1_000_000
    assert len(generated.candidates) > 1_000


@given(st.integers(1, 5000))
def test_divisors_are_all_and_only_those(number):
    assert divisors(number) == tuple(d for d in range(1, number + 1) if number % d == 0)


@pytest.mark.parametrize("engine", PROFILES)
def test_each_rule_that_rejected_has_an_example_of_it(
    make_model, make_training, make_topology, engine
):
    profile = engine_profile(engine)
    parts = (
        make_model(heads=12, key_value_heads=3),
        make_training(global_batch_size=12),
        make_topology(per_host=12),
    )
    generated = generate(*parts, profile)
    assert generated.examples.keys() == generated.rejected.keys() != set()
    known = facts_of(model=parts[0], training=parts[1], topology=parts[2])
    for rule, layout in generated.examples.items():
        broken = violations(known | facts_of(layout=layout), profile)
        assert rule in {violation.rule for violation in broken}
