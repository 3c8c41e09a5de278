"""The language model is found wherever a multimodal config keeps it (case h26)."""

import pytest

from meshfit.errors import InputError
from meshfit.workload import counts
from meshfit.workload.families import read_family
from meshfit.workload.inventory import inventory

TEXT = {
    "model_type": "qwen2", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96,
}  # fmt: skip
VISION = {"model_type": "some_vision", "hidden_size": 8, "num_hidden_layers": 2}


@pytest.mark.parametrize(
    "config",
    [
        {"text_config": TEXT},
        {"llm_config": TEXT, "vision_config": VISION},
        {"language_config": TEXT},
        {"thinker_config": {"text_config": TEXT, "vision_config": VISION, "model_type": "thinker"}},
        {"somewhere": {"deeper": TEXT}},
    ],
    ids=lambda config: next(iter(config)),
)
def test_the_language_config_is_found_by_search(config):
    model = read_family("m", {"model_type": "a_wrapper", **config})
    assert counts.total_parameters(model) == counts.total_parameters(read_family("m", TEXT))
    assert model.model_type == "a_wrapper"


def test_a_tower_is_never_taken_for_the_language_model():
    speech = {**TEXT, "num_hidden_layers": 1}
    config = {"model_type": "wrapper", "speech_config": speech, "text_config": TEXT}
    assert read_family("m", config).num_hidden_layers == 3


def test_towers_that_are_not_counted_are_named():
    config = {"model_type": "wrapper", "text_config": TEXT, "vision_config": VISION}
    notes = inventory(read_family("m", config), 128)["notes"]
    assert "vision_config is not counted: its sizes cannot be read here" in notes


def test_nothing_nested_lists_the_keys_seen_and_asks():
    with pytest.raises(InputError, match=r"Which key holds the language model\? Keys seen: a, b\."):
        read_family("m", {"b": 1, "a": {"c": 2}})


def test_an_unknown_family_inside_is_named_with_its_path():
    inside = {"text_config": {"model_type": "new_text"}}
    with pytest.raises(InputError, match=r"nor is text_config\.model_type 'new_text'"):
        read_family("m", {"model_type": "new", **inside})


def test_a_slip_inside_is_named_with_its_path():
    config = {"model_type": "wrapper", "llm_config": {**TEXT, "hidden_size": -1}}
    with pytest.raises(InputError, match=r"llm_config: hidden_size is -1"):
        read_family("m", config)


def test_deep_nesting_ends():
    config = TEXT
    for _ in range(500):
        config = {"inner": config}
    with pytest.raises(InputError, match="Keys seen: inner"):
        read_family("m", config)


@pytest.mark.parametrize(("inner", "outer"), [(True, False), (False, True)])
def test_what_the_outer_config_says_of_tied_embeddings_goes_before_the_inner_one(inner, outer):
    config = {"model_type": "a_wrapper", "text_config": {**TEXT, "tie_word_embeddings": inner}}
    assert read_family("m", config).tie_word_embeddings is inner
    assert read_family("m", {**config, "tie_word_embeddings": outer}).tie_word_embeddings is outer


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "llava", "vision_config": {"model_type": "x"}},
            "expected clip_vision_model",
        ),
        ({"model_type": "llava", "vision_feature_layer": [1, 2]}, "output of one layer"),
        ({"model_type": "kimi_k25", "vision_config": {"merge_kernel_size": [2]}}, "two sizes"),
        ({"model_type": "glm4v", "vision_config": {"image_size": 4}}, "less than patch_size"),
    ],
)
def test_a_tower_that_cannot_be_read_is_refused_with_the_key(changes, message):
    with pytest.raises(InputError, match=message):
        read_family("m", {"text_config": TEXT, **changes})


def test_kimis_own_names_of_its_towers_sizes_are_read():
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96}
    own = {f"vt_{key}": size for key, size in sizes.items()}
    first, second = (
        read_family("m", {"model_type": "kimi_k25", "text_config": TEXT, "vision_config": vision})
        for vision in (sizes, own)
    )
    assert counts.total_parameters(first) == counts.total_parameters(second)
