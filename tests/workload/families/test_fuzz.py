"""No config, however damaged, ends in anything but a usable model or an ``InputError``."""

import copy
import json
from pathlib import Path

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
    "add_cross_attention", "quantization_config", "text_config", "vision_config",
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
        assert len(str(error)) < 2500
        return
    assert_consistent(model)


def assert_consistent(model):
    """Figures that come from different sums agree, and fit what stores them."""
    document = inventory(model, 4096)
    json.dumps(document, allow_nan=False)
    parameters, cache = document["parameters"], document["kv_cache"]
    assert sum(parameters["by_part"].values()) == parameters["total"] > 0
    assert 0 < parameters["active"] <= parameters["total"]
    layers = sum(
        counts.layer_parameters(model, layer).total for layer in (*model.encoder, *model.layers)
    )
    outside = sum(tensor.elements for tensor in counts.outer_tensors(model))
    towers = parameters["by_part"]["vision_or_other_tower"]
    assert layers + outside + towers == parameters["total"]
    assert document["training_state"]["fp32"]["adamw"]["total"] < 2**63
    assert document["flops"]["forward_per_token"] > 0
    assert cache["bytes_per_token"] >= 0
    assert cache["windowed_bytes_per_sequence"] <= 4096 * cache["bytes_per_token"]
    assert 2 * document["weights"]["bf16"] == document["weights"]["fp32"]


REAL = [
    row["config"]
    for row in json.loads((Path(__file__).parents[1] / "data" / "counted_models.json").read_text())
]


def paths_of(config, path=()):
    for key, value in config.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from paths_of(value, (*path, key))


@st.composite
def damaged_real_configs(draw):
    """A real config with one to three keys damaged, removed or turned into another size."""
    config = copy.deepcopy(draw(st.sampled_from(REAL)))
    for _ in range(draw(st.integers(1, 3))):
        if not (paths := sorted(paths_of(config))):
            break
        *parents, key = draw(st.sampled_from(paths))
        where = config
        for parent in parents:
            where = where[parent]
        if draw(st.booleans()):
            where[key] = draw(damaged | plausible)
        else:
            del where[key]
    return config


@settings(max_examples=600, deadline=None)
@given(config=damaged_real_configs())
def test_a_damaged_real_config_gives_consistent_figures_or_an_input_error(config):
    try:
        model = read_family("damaged", config)
    except InputError as error:
        assert len(str(error)) < 2500
        return
    assert_consistent(model)


@pytest.mark.parametrize("model_type", ["gpt2", "llama", "mistral", "qwen2", "qwen3"])
def test_the_largest_sizes_that_are_read_fit_64_bits(model_type):
    own = {"n_embd": 2**20, "n_head": 2**16, "n_layer": 2**13, "n_inner": 2**20}
    common = {
        "hidden_size": 2**20, "num_attention_heads": 2**16, "num_key_value_heads": 2**16,
        "head_dim": 2**4, "intermediate_size": 2**20, "num_hidden_layers": 2**13,
    }  # fmt: skip
    sizes = own if model_type == "gpt2" else common
    model = read_family("largest", {"model_type": model_type, "vocab_size": 2**24, **sizes})
    assert 16 * counts.total_parameters(model) < 2**63
