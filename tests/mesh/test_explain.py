from meshfit.engines import engine_profile
from meshfit.mesh.explain import Divided, axis_shares
from meshfit.mesh.spec import make_layout

NATIVE = engine_profile("native")


def shares(model, training, topology, keys, engine="native"):
    found = axis_shares(model, training, topology, make_layout(keys), engine_profile(engine))
    return {share.axis: share for share in found}


def test_tensor_parallel_divides_heads_widths_vocabulary_and_the_sequence(
    make_model, make_training, make_topology
):
    found = shares(make_model(), make_training(), make_topology(per_host=4), {"tp": 4})
    assert {one.dimension: (one.whole, one.part) for one in found["tp"].divides} == {
        "query heads": (8, 2),
        "key/value heads": (4, 1),
        "FFN width": (256, 64),
        "vocabulary": (512, 128),
        "sequence between blocks": (128, 32),
    }


def test_key_value_heads_beyond_their_number_are_copies(make_model, make_training, make_topology):
    parts = (make_model(), make_training(), make_topology(per_host=8))
    found = shares(*parts, {"tp": 8}, engine="megatron")
    heads = next(one for one in found["tp"].divides if one.dimension == "key/value heads")
    assert heads == Divided(dimension="key/value heads", whole=4, part=1, copies=2)
    vocabulary = next(one for one in found["tp"].divides if one.dimension == "vocabulary")
    assert (vocabulary.whole, vocabulary.part) == (1024, 128)


def test_axes_come_outermost_first_with_the_level_that_their_groups_cross(
    make_model, make_training, make_topology
):
    topology = make_topology(per_host=4, hosts=2)
    keys = {"dp_replicate": 2, "dp_shard": 2, "tp": 2}
    found = shares(make_model(), make_training(), topology, keys)
    assert [(name, share.level, share.leaves_host) for name, share in found.items()] == [
        ("dp_replicate", "network", True),
        ("dp_shard", "node", False),
        ("tp", "node", False),
    ]
    assert found["dp_shard"].divides == (Divided(dimension="sequences of a step", whole=8, part=4),)


def test_a_pipeline_divides_layers_by_its_largest_rank(make_model, make_training, make_topology):
    keys = {"pp": 2, "vpp": 2, "stage_layers": [1, 2, 1, 1]}
    found = shares(make_model(layers=5), make_training(), make_topology(per_host=2), keys)
    assert found["pp"].divides == (Divided(dimension="layers", whole=5, part=3),)


def test_context_parallel_divides_the_sequence_and_under_all_to_all_the_heads(
    make_model, make_training, make_topology
):
    parts = (make_model(), make_training(), make_topology(per_host=2))
    ring = shares(*parts, {"cp": 2, "cp_method": "ring"})["cp"]
    assert [one.dimension for one in ring.divides] == ["sequence"]
    exchange = shares(*parts, {"cp": 2}, engine="deepspeed")["cp"]
    assert {one.dimension: one.part for one in exchange.divides} == {
        "sequence": 64,
        "query heads in attention": 4,
    }


def test_one_rank_divides_nothing(make_model, make_training, make_topology):
    assert shares(make_model(), make_training(), make_topology(per_host=1), {}) == {}
