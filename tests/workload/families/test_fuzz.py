"""No config, however damaged, ends in anything but a usable model or an ``InputError``."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshfit.errors import InputError
from meshfit.workload import counts
from meshfit.workload.families import FAMILIES, read_family
from meshfit.workload.inventory import inventory

SIZES = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "max_position_embeddings", "sliding_window",
    "max_window_layers", "n_embd", "n_head", "n_layer", "n_inner", "n_positions",
)  # fmt: skip
OTHER_KEYS = (
    "tie_word_embeddings", "attention_bias", "mlp_bias", "attention_dropout", "use_sliding_window",
    "layer_types", "per_layer_config", "attn_pdrop", "resid_pdrop", "embd_pdrop",
    "add_cross_attention",
)  # fmt: skip

plausible = st.sampled_from([1, 2, 4, 8, 16, 64])
damaged = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([2**20, 2**24, 2**31, 2**63, 10**30, 10**5000]),
    st.floats(),
    st.text(max_size=5),
    st.recursive(st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)),
    st.lists(st.sampled_from(["full_attention", "sliding_attention", "x"]), max_size=4),
)


@settings(max_examples=500, deadline=None)
@given(
    model_type=st.sampled_from([*FAMILIES, "unknown"]),
    sizes=st.dictionaries(st.sampled_from(SIZES), plausible),
    damage=st.dictionaries(st.sampled_from([*SIZES, *OTHER_KEYS]), damaged, max_size=2),
)
def test_a_damaged_config_gives_a_consistent_inventory_or_an_input_error(model_type, sizes, damage):
    config = {"model_type": model_type, **sizes, **damage}
    try:
        model = read_family("fuzzed", config)
    except InputError as error:
        assert len(str(error)) < 500
        return
    document = inventory(model, 4096)
    parameters = document["parameters"]
    assert sum(parameters["by_part"].values()) == parameters["total"] > 0
    assert document["training_state"]["fp32"]["adamw"]["total"] < 2**63
    assert document["flops"]["forward_per_token"] > 0
    assert document["kv_cache"]["bytes_per_token"] > 0


@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_largest_sizes_that_are_read_fit_64_bits(model_type):
    own = {"n_embd": 2**20, "n_head": 2**16, "n_layer": 2**13, "n_inner": 2**20}
    common = {
        "hidden_size": 2**20, "num_attention_heads": 2**16, "num_key_value_heads": 2**16,
        "head_dim": 2**4, "intermediate_size": 2**20, "num_hidden_layers": 2**13,
    }  # fmt: skip
    sizes = own if model_type == "gpt2" else common
    model = read_family("largest", {"model_type": model_type, "vocab_size": 2**24, **sizes})
    assert 16 * counts.total_parameters(model) < 2**63
