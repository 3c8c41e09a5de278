"""What each family makes of its config, and what it refuses."""

import pytest

from meshfit.errors import InputError
from meshfit.workload.families import FAMILIES, read_family


def read(**config):
    return read_family("m", config)


def refused(**config) -> str:
    with pytest.raises(InputError) as caught:
        read(**config)
    return str(caught.value)


def test_an_unknown_family_is_named_with_the_nearest_or_with_all():
    assert refused(model_type="mixtral2").endswith(
        "model_type 'mixtral2' is not known; nearest: mixtral"
    )
    message = refused(model_type="zzzzzz")
    assert all(name in message for name in FAMILIES)


def test_a_config_without_a_family_lists_the_keys_seen_and_asks():
    message = refused(hidden_size=64, num_attention_heads=4)
    assert "model_type is missing, and no config inside names a known one" in message
    assert message.endswith("Keys seen: hidden_size, num_attention_heads.")
    assert "model_type is null" in refused(model_type=None)
    assert "model_type is ['llama']" in refused(model_type=["llama"])


def test_experts_in_a_family_without_are_a_contradiction():
    assert "num_experts is 8, but llama has no experts" in refused(
        model_type="llama", num_experts=8
    )
    assert read(model_type="llama", num_experts=1).moe is None


def test_sizes_that_no_model_has_are_refused_together():
    message = refused(
        model_type="mixtral", hidden_size=2**20, num_attention_heads=2**10, head_dim=64,
        intermediate_size=2**20, num_local_experts=2**14, num_hidden_layers=2**13,
    )  # fmt: skip
    assert "parameters; more than" in message


def test_a_message_starts_with_the_name_the_person_used():
    assert refused(model_type="llama", hidden_size=-1).startswith("model m: hidden_size is -1;")


def test_sizes_per_layer_are_refused_not_overlooked():
    overrides = {"0": {"num_attention_heads": 2}}
    assert "per_layer_config" in refused(model_type="llama", per_layer_config=overrides)


def test_the_config_is_kept_as_read():
    config = {"model_type": "llama", "hidden_size": 64, "rope_theta": 1e4}
    assert read_family("m", config).config is config


def test_equal_layers_are_one_object():
    model = read(model_type="qwen3", use_sliding_window=True, max_window_layers=2)
    assert len({id(layer) for layer in model.layers}) == 2


@pytest.mark.parametrize("model_type", ["qwen2", "mistral", "gpt2"])
def test_heads_must_divide_the_hidden_size_when_head_dim_follows_from_them(model_type):
    keys = ("n_embd", "n_head") if model_type == "gpt2" else ("hidden_size", "num_attention_heads")
    message = refused(model_type=model_type, **dict(zip(keys, (100, 3), strict=True)))
    assert "hidden_size 100 is no multiple of num_attention_heads 3" in message


def test_a_head_dim_of_its_own_frees_the_hidden_size_except_in_llama():
    sizes = {
        "hidden_size": 100, "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 32,
    }  # fmt: skip
    assert read(model_type="mistral", **sizes).attention.head_dim == 32
    assert read(model_type="qwen3", **sizes).attention.head_dim == 32
    assert "no multiple" in refused(model_type="llama", **sizes)


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3", "mistral"])
def test_key_value_heads_must_divide_the_heads(model_type):
    message = refused(model_type=model_type, num_attention_heads=32, num_key_value_heads=5)
    assert "num_attention_heads 32 is no multiple of num_key_value_heads 5" in message


def test_rotary_positions_need_an_even_head():
    assert "head_dim is 33; rotary" in refused(model_type="mistral", head_dim=33)


def test_heads_too_wide_together_are_refused():
    assert "exceeds 1048576" in refused(model_type="qwen3", head_dim=2**20)


def test_qwen2_has_biases_on_qkv_whatever_the_config_says():
    attention = read(model_type="qwen2", attention_bias=False).attention
    assert (attention.qkv_bias, attention.output_bias) == (True, False)


def test_mistral_has_its_window_unless_null_says_otherwise():
    assert read(model_type="mistral").attention.sliding_window == 4096
    assert read(model_type="mistral", sliding_window=None).attention.sliding_window is None
    assert "sliding_window is 0" in refused(model_type="mistral", sliding_window=0)


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
class TestQwenWindows:
    def windows(self, model_type, **config):
        model = read(model_type=model_type, num_hidden_layers=4, **config)
        return [layer.attention.sliding_window for layer in model.layers]

    def test_a_window_without_use_sliding_window_is_none(self, model_type):
        assert self.windows(model_type, sliding_window=8, max_window_layers=0) == [None] * 4

    def test_layers_from_max_window_layers_on_have_the_window(self, model_type):
        found = self.windows(
            model_type, sliding_window=8, max_window_layers=3, use_sliding_window=True
        )
        assert found == [None, None, None, 8]

    def test_layer_types_decide_where_they_are_given(self, model_type):
        kinds = ["sliding_attention", "full_attention", "attention", "sliding_attention"]
        found = self.windows(
            model_type, sliding_window=8, use_sliding_window=True, layer_types=kinds
        )
        assert found == [8, None, None, 8]

    def test_layer_types_of_the_wrong_number_or_kind_are_refused(self, model_type):
        base = {"model_type": model_type, "num_hidden_layers": 2, "use_sliding_window": True}
        assert "1 entries for 2" in refused(**base, layer_types=["full_attention"])
        assert "layer_types is" in refused(**base, layer_types=["full_attention", "mamba"])
        assert "layer_types is 'full'" in refused(**base, layer_types="full")

    def test_a_sliding_layer_without_a_window_is_a_contradiction(self, model_type):
        message = refused(
            model_type=model_type, num_hidden_layers=1, layer_types=["sliding_attention"]
        )
        assert "there is no window" in message


class TestGpt2:
    def test_common_names_stand_for_gpt2s_own(self):
        own = read(model_type="gpt2", n_embd=64, n_head=4, n_layer=2, n_positions=32)
        common = read(
            model_type="gpt2", hidden_size=64, num_attention_heads=4, num_hidden_layers=2,
            max_position_embeddings=32,
        )  # fmt: skip
        assert own == common

    def test_two_names_with_two_values_are_refused(self):
        message = refused(model_type="gpt2", n_embd=64, hidden_size=128)
        assert "n_embd is 64 and hidden_size is 128" in message

    def test_a_null_inner_size_is_four_times_the_hidden_size(self):
        assert read(model_type="gpt2", n_embd=60, n_inner=None).mlp.intermediate_size == 240
        assert read(model_type="gpt2", n_embd=60, n_inner=100).mlp.intermediate_size == 100
        assert "exceeds" in refused(model_type="gpt2", n_embd=2**20, n_head=1)

    def test_the_largest_dropout_counts(self):
        assert read(model_type="gpt2").dropout == 0.1
        assert read(model_type="gpt2", embd_pdrop=0.3, attn_pdrop=0).dropout == 0.3

    def test_cross_attention_is_refused(self):
        assert "add_cross_attention" in refused(model_type="gpt2", add_cross_attention=True)


class TestPerLayerSizes:
    def gemma4(self, per_layer):
        return {"model_type": "gemma4_text", "num_hidden_layers": 2, "per_layer_config": per_layer}

    def test_another_family_refuses_them_also_inside(self):
        inside = {"model_type": "llama", "per_layer_config": {"0": {"head_dim": 8}}}
        assert "llama is not read with" in refused(model_type="a_wrapper", text_config=inside)
        with_text = {"model_type": "qwen3_vl_text", "per_layer_config": {"0": {"head_dim": 8}}}
        assert "per_layer_config" in refused(model_type="qwen3_vl", text_config=with_text)

    def test_what_is_no_layer_or_no_known_size_is_refused(self):
        assert "names layer 2, but there are 2" in refused(**self.gemma4({"2": {"head_dim": 8}}))
        assert "per_layer_config['x']" in refused(**self.gemma4({"x": {"head_dim": 8}}))
        assert "sizes of head_dim and" in refused(**self.gemma4({"1": {"hidden_size": 8}}))
        assert "head_dim is 0" in refused(**self.gemma4({"1": {"head_dim": 0}}))
