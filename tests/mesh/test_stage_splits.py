from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshfit.engines import engine_profile
from meshfit.mesh.facts import facts_of
from meshfit.mesh.generate import generate
from meshfit.mesh.rules import violations
from meshfit.mesh.search import SearchSpec
from meshfit.mesh.spec import balanced_stages, even_stages
from meshfit.mesh.stage_splits import head_layers, stage_splits

NATIVE, MEGATRON = engine_profile("native"), engine_profile("megatron")


def splits_for(model, profile, stages):
    found = stage_splits(model, profile)
    row = int(found.of(np.array([stages]))[0])
    return [found.splits[index] for index in found.indices[row, : found.counts[row]]]


def test_126_layers_over_16_stages_are_those_of_llama_405b():
    """7 on the first and the last stage, 8 on the others (2407.21783, section 3.3.2)."""
    published = (7, *(8,) * 14, 7)
    assert balanced_stages(126, 16, embedding=1, head=1) == published
    assert even_stages(126, 16) == published


@given(
    layers=st.integers(1, 130),
    stages=st.integers(1, 40),
    embedding=st.integers(0, 3),
    head=st.integers(0, 5),
)
def test_a_balanced_split_has_every_layer_and_counts_within_one(layers, stages, embedding, head):
    split = balanced_stages(layers, stages, embedding=embedding, head=head)
    assume(split is not None)
    assert sum(split) == layers
    assert min(split) >= 1
    counted = list(split)
    counted[0] += embedding
    counted[-1] += head
    assert max(counted) - min(counted) <= 1


def test_an_engine_that_divides_evenly_or_not_at_all_gets_the_uneven_split(make_model):
    model = make_model(layers=126)
    assert splits_for(model, MEGATRON, 16) == [None, (7, *(8,) * 14, 7)]
    assert splits_for(model, NATIVE, 16) == [None]  # it is what the engine does anyway


def test_layers_that_divide_get_lighter_ends_too(make_model):
    model = make_model(layers=80)
    assert splits_for(model, NATIVE, 8) == [None, (9, 10, 10, 11, 11, 10, 10, 9)]


def test_a_heavy_head_counts_as_the_layers_it_weighs(make_model):
    light = make_model(layers=32, vocab_size=512)
    heavy = replace(light, vocab_size=512 * 8)
    assert head_layers(light) == 1
    assert head_layers(heavy) > 2
    assert splits_for(heavy, NATIVE, 4)[-1] == balanced_stages(
        32, 4, embedding=1, head=head_layers(heavy)
    )


def test_where_the_ends_may_be_bare_embedding_and_head_get_stages_of_their_own(make_model):
    """2407.21783, section 3.3.2: the first chunk of the first rank has the embedding alone."""
    model = make_model(layers=126)
    assert splits_for(model, MEGATRON, 128) == [None, (0, *(1,) * 126, 0)]
    assert splits_for(model, NATIVE, 128) == [None]


def test_no_stage_between_the_ends_is_bare():
    assert balanced_stages(4, 7, embedding=1, head=1, bare_ends=True) is None
    assert balanced_stages(4, 6, embedding=1, head=1, bare_ends=True) == (0, 1, 1, 1, 1, 0)


def test_engines_without_given_stages_get_none(make_model):
    assert stage_splits(make_model(layers=80), replace(NATIVE, rules=())).splits == (None,)


@pytest.mark.parametrize("engine", ["native", "megatron", "torchtitan"])
def test_generated_splits_are_legal_and_every_one_is_there(
    make_model, make_training, make_topology, engine
):
    profile = engine_profile(engine)
    parts = (
        make_model(layers=10, heads=8, key_value_heads=8),
        make_training(global_batch_size=8),
        make_topology(per_host=8),
    )
    search = SearchSpec(tp=(1,), cp=(1,), micro_batch_size=(1,), recompute=("none",))
    generated = generate(*parts, profile, search)
    known = facts_of(model=parts[0], training=parts[1], topology=parts[2])
    layouts = [generated.candidates.layout(row) for row in range(len(generated.candidates))]
    assert len(set(layouts)) == len(layouts)
    assert generated.considered == len(layouts) + sum(generated.rejected.values())
    for layout in layouts:
        assert violations(known | facts_of(layout=layout), profile) == ()
    four = {layout.stage_layers for layout in layouts if layout.pp == 4 and layout.vpp == 1}
    assert four == {None, (2, 3, 3, 2)} - ({None} if engine == "megatron" else {(2, 3, 3, 2)})
