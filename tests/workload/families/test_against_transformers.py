"""transformers is the reference: same defaults, same parameters, same tensor-parallel split.

A family is added here with the model it builds (``TINY``); the defaults are checked by themselves.
"""

import re

import pytest

from meshfit.workload import counts
from meshfit.workload.families import FAMILIES, read_family

transformers = pytest.importorskip("transformers")

DECODER = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
GPT2 = {"vocab_size": 97, "n_embd": 32, "n_head": 4, "n_layer": 3, "n_positions": 24}
TINY = {
    "llama": {"model_type": "llama", **DECODER},
    "llama, multi-head by default": {
        "model_type": "llama", **DECODER, "num_key_value_heads": None,
    },
    "llama, biases": {
        "model_type": "llama", **DECODER, "attention_bias": True, "mlp_bias": True,
    },
    "llama, tied, wide heads": {
        "model_type": "llama", **DECODER, "head_dim": 16, "tie_word_embeddings": True,
    },
    "qwen2": {"model_type": "qwen2", **DECODER},
    "qwen2, tied, wide heads": {
        "model_type": "qwen2", **DECODER, "head_dim": 16, "tie_word_embeddings": True,
    },
    "qwen3, default head_dim": {"model_type": "qwen3", **DECODER},
    "qwen3, biases, tied": {
        "model_type": "qwen3", **DECODER, "head_dim": 16, "attention_bias": True,
        "tie_word_embeddings": True,
    },
    "mistral": {"model_type": "mistral", **DECODER},
    "mistral, wide heads": {"model_type": "mistral", **DECODER, "head_dim": 16},
    "gpt2": {"model_type": "gpt2", **GPT2},
    "gpt2, untied, own inner size": {
        "model_type": "gpt2", **GPT2, "n_inner": 40, "tie_word_embeddings": False,
    },
    "gpt2, common names": {
        "model_type": "gpt2", "vocab_size": 97, "hidden_size": 32, "num_attention_heads": 4,
        "num_hidden_layers": 3, "max_position_embeddings": 24,
    },
}  # fmt: skip


def config_class(config):
    arguments = {key: value for key, value in config.items() if key != "model_type"}
    return transformers.AutoConfig.for_model(config["model_type"], **arguments)


def parameters_of(config):
    """Name -> number of elements of the model on the meta device, shared tensors once."""
    import torch

    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config_class(config))
    model.tie_weights()
    return {name: parameter.numel() for name, parameter in model.named_parameters()}


def part_of(name):
    """The published rule: the first of these words that a tensor's name contains decides."""
    for pattern, part in (
        (r"lm_head", "lm_head"),
        (r"embed_tokens|wte", "embedding"),
        (r"attn|attention", "attention_or_mixer"),
        (r"norm|ln_", "norm"),
    ):
        if re.search(pattern, name):
            return part
    return "mlp_or_other"


@pytest.mark.parametrize("config", TINY.values(), ids=TINY)
def test_parameters_by_part_equal_those_of_the_built_model(config):
    expected = dict.fromkeys(counts.PARTS, 0)
    for name, elements in parameters_of(config).items():
        expected[part_of(name)] += elements
    assert counts.parameters_by_part(read_family("tiny", config)) == expected


@pytest.mark.parametrize("config", TINY.values(), ids=TINY)
def test_blocks_of_a_layer_equal_those_of_the_built_model(config):
    model = read_family("tiny", config)
    first = {
        name: elements
        for name, elements in parameters_of(config).items()
        if re.search(r"\.(layers|h)\.0\.", name)
    }
    block = counts.layer_parameters(model, model.layers[0])
    attention = sum(n for name, n in first.items() if re.search(r"\.(self_attn|attn)\.", name))
    mlp = sum(n for name, n in first.items() if ".mlp." in name)
    assert block.attention.total == attention
    assert block.mlp.total == mlp
    assert block.norm.total == sum(first.values()) - attention - mlp


@pytest.mark.parametrize(
    "config",
    [config for config in TINY.values() if config["model_type"] != "gpt2"],  # it has no plan
    ids=[name for name, config in TINY.items() if config["model_type"] != "gpt2"],
)
def test_what_is_sharded_is_what_the_familys_tensor_parallel_plan_shards(config):
    plan = config_class(config).base_model_tp_plan
    sharded = {"attention": 0, "mlp": 0}
    for name, elements in parameters_of(config).items():
        if ".layers.0." not in name:
            continue
        module, _, kind = name.removeprefix("model.").rpartition(".")
        style = plan.get(module.replace(".0.", ".*."), "")
        if style == "colwise" or (style == "rowwise" and kind == "weight"):
            sharded["attention" if "self_attn" in name else "mlp"] += elements
    model = read_family("tiny", config)
    block = counts.layer_parameters(model, model.layers[0])
    assert block.attention.sharded == sharded["attention"]
    assert block.mlp.sharded == sharded["mlp"]
    assert block.norm.sharded == 0


@pytest.mark.parametrize("model_type", FAMILIES)
def test_an_empty_config_means_the_defaults_of_the_config_class(model_type):
    ours = read_family("defaults", {"model_type": model_type})
    theirs = config_class({"model_type": model_type})
    assert ours.hidden_size == theirs.hidden_size
    assert ours.vocab_size == theirs.vocab_size
    assert ours.num_hidden_layers == theirs.num_hidden_layers
    assert ours.max_position_embeddings == theirs.max_position_embeddings
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    assert ours.attention.num_attention_heads == theirs.num_attention_heads


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3", "mistral"])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"num_attention_heads": 64},
        {"num_attention_heads": 64, "num_key_value_heads": 16},
        {"hidden_size": 2048},
        {"head_dim": 64},
        {"sliding_window": 128},
        {"sliding_window": None},
        {"use_sliding_window": True, "max_window_layers": 5},
        {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 5},
        {"use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"] * 16},
        {"attention_dropout": 0.25},
        {"intermediate_size": 512},
    ],
    ids=lambda change: "+".join(change) or "nothing",
)
def test_attention_keys_resolve_as_in_the_config_class(model_type, change):
    ours = read_family("changed", {"model_type": model_type, **change})
    theirs = config_class({"model_type": model_type, **change})
    head_dim = getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads
    assert ours.attention.head_dim == head_dim
    assert ours.attention.num_key_value_heads == theirs.num_key_value_heads
    assert ours.mlp.intermediate_size == theirs.intermediate_size
    assert ours.dropout == theirs.attention_dropout
    assert [layer.attention.sliding_window for layer in ours.layers] == windows(theirs)


def windows(config):
    """Window of every layer as the modelling code applies it."""
    if config.model_type == "llama":
        return [None] * config.num_hidden_layers
    if config.model_type == "mistral":
        return [config.sliding_window] * config.num_hidden_layers
    sliding = [kind == "sliding_attention" for kind in config.layer_types]
    return [config.sliding_window if slides else None for slides in sliding]
