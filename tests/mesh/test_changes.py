"""Single changes of a layout, and which of them are legal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.engines import engine_profile
from meshfit.job.layout import layout_of_keys, parse_layout_text
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.changes import legal_changes, single_changes
from meshfit.mesh.facts import facts_of
from meshfit.mesh.rules import allowed, violations
from meshfit.mesh.spec import LayoutSpec, make_layout
from tests.mesh.strategies import layouts
from tests.predict.builders import BF16, cluster, llama_8b, training

NATIVE, MEGATRON = engine_profile("native"), engine_profile("megatron")


def changes(layout, *, ranks=None, layers=32, profile=MEGATRON):
    return single_changes(
        layout,
        num_ranks=ranks or layout.world_size,
        num_hidden_layers=layers,
        profile=profile,
    )


def words(keys, **options):
    return {change.words for change in changes(make_layout(keys), **options)}


@given(layouts, st.sampled_from([None, 16, 24]), st.sampled_from([NATIVE, MEGATRON]))
def test_every_change_fills_the_world_and_is_another_layout(layout, ranks, profile):
    found = changes(layout, ranks=ranks, profile=profile)
    assert found or ranks not in (None, layout.world_size)
    for change in found:
        assert change.layout.world_size == (ranks or layout.world_size)
        assert change.layout.num_stages <= 32
        assert change.layout != layout
        assert change.words
    assert len({change.layout for change in found}) == len(found)


@pytest.mark.parametrize(
    "keys",
    [
        {"dp_shard": 8, "micro_batch_size": 4},
        {"dp_replicate": 4, "tp": 4},
        {"pp": 4, "dp_shard": 2, "zero_stage": 1, "tp": 2, "recompute": "full"},
        {"pp": 2, "vpp": 2, "dp_replicate": 4},
        {"dp_shard": 8, "ep": 4, "zero_stage": 1},
    ],
)
def test_the_words_of_a_change_are_what_the_command_line_takes(keys):
    layout = make_layout(keys, zero_stage=MEGATRON.default_zero_stage)
    for change in changes(layout):
        text = change.words.rpartition(" ")[2] if "stage_layers" in change.words else change.words
        given_keys = layout.as_json() | parse_layout_text(text)
        follow = ("zero_stage",) if given_keys.get("dp_shard", 1) == 1 else ()
        if given_keys.get("pp", 1) == 1:
            follow += ("schedule", "vpp")
        if given_keys.get("ep", 1) == 1:
            follow += ("etp",)
        if "schedule" not in parse_layout_text(text) and "vpp" in given_keys:
            follow += ("schedule",)
        keys_left = {key: value for key, value in given_keys.items() if key not in follow}
        assert layout_of_keys(keys_left, MEGATRON) == change.layout, change.words


def test_an_axis_takes_its_ranks_from_data_parallelism():
    found = words({"dp_shard": 4, "dp_replicate": 2, "zero_stage": 1})
    assert {"tp=2,dp_shard=2", "tp=2,dp_replicate=1", "dp_shard=8,dp_replicate=1"} <= {
        ",".join(sorted(one.split(","), key=lambda pair: not pair.startswith(("tp", "dp_shard=8"))))
        for one in found
    }


def test_layers_move_from_the_ends_to_the_middle():
    found = {
        change.words.partition(",")[0]: change.layout.stage_layers
        for change in changes(make_layout({"pp": 4, "dp_replicate": 2}))
        if "less" in change.words
    }
    assert found["one layer less on the first stage"] == (7, 9, 8, 8)
    assert found["one layer less on the first and last stage"] == (7, 9, 9, 7)
    assert found["2 layers less on the last stage"] == (8, 9, 9, 6)
    assert all(sum(layers) == 32 for layers in found.values())


def test_no_stage_is_left_without_a_layer():
    found = changes(make_layout({"pp": 4}), layers=5)
    assert all(min(change.layout.stage_layers or (1,)) >= 1 for change in found)


def test_ends_without_a_layer_keep_their_policies_open():
    """The embedding and the head on stages of their own: four stages for two layers."""
    bare = make_layout({"pp": 4, "stage_layers": (0, 1, 1, 0)})
    found = changes(bare, layers=2)
    assert {change.layout.recompute for change in found} > {"full", "selective"}
    assert all(min((change.layout.stage_layers or (1,))[1:-1], default=1) >= 1 for change in found)


def test_policies_are_those_of_the_engine():
    tried = {change.layout.recompute for change in changes(make_layout({"tp": 8}))}
    assert tried - {"none"} == set(MEGATRON.recompute) - {"none"}
    offloads = {change.layout.offload for change in changes(make_layout({"tp": 8}), profile=NATIVE)}
    assert offloads - {None} == set(NATIVE.offload)


def legal(layout, *, nodes=1, profile=NATIVE):
    topology = cluster(nodes=nodes)
    facts = facts_of(
        model=llama_8b(),
        training=training(sequence_length=8192, global_batch_size=64, precision=BF16),
        topology=topology,
    )
    every = changes(layout, ranks=topology.num_accelerators, profile=profile)
    return legal_changes(layout, every, facts, profile), facts


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"dp_replicate": 8}, "dp_replicate=16"),
        ({"dp_shard": 16, "micro_batch_size": 3}, "micro_batch_size=4"),
        ({"pp": 2, "tp": 8, "schedule": "interleaved_1f1b"}, "schedule=1f1b"),
        ({"pp": 2, "tp": 8, "schedule": "unheard of"}, "schedule=1f1b"),
    ],
)
def test_one_change_makes_a_layout_legal(keys, expected):
    layout = make_layout(keys)
    found, facts = legal(layout, nodes=2)
    assert violations(facts | facts_of(layout=layout), NATIVE)
    assert expected in [change.words for change in found]
    assert allowed(Candidates.from_layouts([c.layout for c in found]), NATIVE, facts).all()


def test_layers_that_no_stages_divide_are_spread_by_hand():
    layout = make_layout({"pp": 6, "dp_replicate": 4})
    found, _ = legal(layout, nodes=3, profile=MEGATRON)
    assert found[0].words == "stage_layers=5:5:6:6:5:5"


def test_a_layout_with_two_faults_has_no_single_change():
    layout = LayoutSpec(tp=4, sp=True, pp=2, recompute="unheard of", schedule="unheard of")
    found, _ = legal(layout)
    assert found == []
