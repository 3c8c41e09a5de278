import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.errors import InputError
from meshfit.funnel.proxy.shrink import shrunk
from meshfit.mesh.spec import make_layout

POWERS = st.sampled_from([1, 2, 4, 8])


def cut(keys, ranks, layers=32, batch=512):
    return shrunk(make_layout(keys), ranks, num_hidden_layers=layers, global_batch_size=batch)


degrees = st.fixed_dictionaries(
    {
        "pp": POWERS,
        "tp": POWERS,
        "cp": st.sampled_from([1, 2]),
        "dp_shard": POWERS,
        "dp_replicate": POWERS,
    }
)


@given(keys=degrees, ranks=POWERS)
def test_ranks_are_filled_and_what_a_rank_does_to_a_layer_stays(keys, ranks):
    whole = make_layout(keys | {"micro_batch_size": 2, "recompute": "full"})
    try:
        proxy = shrunk(whole, ranks, num_hidden_layers=64, global_batch_size=1024)
    except InputError:
        assert ranks % (whole.tp * whole.cp) or ranks > whole.world_size
        return
    small = proxy.layout
    assert small.world_size == ranks
    kept = ("tp", "sp", "cp", "cp_method", "ep", "etp", "micro_batch_size", "recompute", "offload")
    assert all(getattr(small, name) == getattr(whole, name) for name in kept)
    for axis in ("pp", "dp_shard", "dp_replicate"):
        assert getattr(whole, axis) % getattr(small, axis) == 0
    assert small.num_stages <= proxy.layers <= 64
    assert proxy.global_batch_size % (small.data_parallel_size * small.micro_batch_size) == 0
    assert (
        small.data_parallel_size > 1
        or whole.data_parallel_size == 1
        or ranks < 2 * whole.tp * whole.cp
    )


def test_a_rank_keeps_its_states_and_its_micro_batches_up_to_some_for_each_stage():
    proxy = cut({"tp": 8, "pp": 4, "dp_shard": 8}, 16, layers=80, batch=512)
    assert proxy.layout == make_layout({"tp": 8, "dp_shard": 2})
    assert proxy.layers == 5  # a quarter of the stages, a quarter of the shards
    assert proxy.global_batch_size == 4 * 2
    deep = cut({"tp": 8, "pp": 4, "dp_shard": 8}, 32, layers=80, batch=512)
    assert (deep.layout.pp, deep.layout.dp_shard, deep.layers) == (2, 2, 10)


def test_replicas_change_no_depth():
    proxy = cut({"dp_replicate": 32}, 8)
    assert (proxy.layout, proxy.layers) == (make_layout({"dp_replicate": 8}), 32)


def test_an_interleaved_pipeline_of_one_rank_is_none():
    layout = cut({"pp": 4, "vpp": 2, "tp": 8}, 8).layout
    assert (layout.pp, layout.vpp, layout.schedule) == (1, 1, "1f1b")
    assert cut({"pp": 4, "vpp": 2, "tp": 8}, 16).layout.vpp == 2


def test_ranks_that_cannot_be_filled_are_refused():
    with pytest.raises(
        InputError, match=r"no proxy of dp_shard=3,tp=8,zero_stage=3 fills 16 ranks"
    ):
        cut({"tp": 8, "dp_shard": 3}, 16)
    with pytest.raises(InputError, match="tp and cp take 16"):
        cut({"tp": 8, "cp": 2, "dp_shard": 4}, 8)
