import pytest

from meshfit.validate.architecture import model_of, named_model
from meshfit.validate.rows import NotModelledError
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.counts import total_parameters
from tests.validate.builders import row

GPT = {
    "n_layers": "24", "hidden": "2048", "ffn_hidden": "8192", "n_heads": "16", "n_kv_heads": "16",
    "vocab": "50257", "gated_mlp": "0", "norm": "layernorm", "pos_embedding": "learned",
    "tied_embeddings": "1", "linear_bias": "1", "seq_len": "2048",
}  # fmt: skip


def test_llama_has_its_published_parameters():
    assert total_parameters(model_of(row())) == 8_030_261_248


def test_gpt_has_biases_learned_positions_and_one_matrix_at_both_ends():
    model = model_of(row(**GPT))
    assert model.learned_positions == 2048
    assert model.tie_word_embeddings
    # 12 L h^2 (1 + 13 / 12 h) + (V + s) h and the final norm: 2104.04473, equation 2
    h, layers, vocabulary = 2048, 24, 50257
    expected = layers * (12 * h * h + 13 * h) + (vocabulary + 2048) * h + 2 * h
    assert total_parameters(model) == expected


def test_the_padded_vocabulary_is_what_the_engine_holds():
    assert model_of(row(vocab="50257", vocab_padded="51200")).vocab_size == 51200


def test_biases_of_attention_alone():
    model = model_of(row(linear_bias="attention only"))
    assert (model.attention.qkv_bias, model.mlp.bias) == (True, False)


def test_latent_attention_from_its_dims():
    dims = "q-lora-rank=192;kv-lora-rank=64;qk-head-dim=16;qk-pos-emb-head-dim=8;v-head-dim=16"
    block = model_of(row(arch="dense-mla", mla_dims=dims)).find(LatentAttentionSpec)
    assert block is not None
    assert (block.q_lora_rank, block.kv_lora_rank, block.qk_head_dim) == (192, 64, 24)


def test_rows_that_agree_in_their_columns_share_one_model():
    assert model_of(row(id="R-1")) is model_of(row(id="R-2", n_gpus="16"))


def test_experts_from_the_words_of_a_note():
    model = model_of(row(arch="moe", note="64 experts, top-6, 2 shared, expert width 1408"))
    moe = model.moe
    assert moe is not None
    assert (moe.num_experts, moe.experts_per_token) == (64, 6)
    assert moe.expert.intermediate_size == 1408
    assert moe.shared is not None
    assert moe.shared.intermediate_size == 2816


def test_experts_are_as_wide_as_an_mlp_where_the_note_gives_no_width():
    moe = model_of(row(arch="moe", note="8 experts top 2")).moe
    assert moe is not None
    assert (moe.expert.intermediate_size, moe.shared) == (14336, None)


def test_what_the_columns_leave_open_is_the_catalogues_of_that_name():
    model = model_of(row(model="mixtral-8x7b", arch="moe", n_layers="32", hidden=""))
    assert model.moe is not None
    assert model.moe.num_experts == 8


@pytest.mark.parametrize(
    ("name", "layers", "known"),
    [
        ("llama4-maverick-400b", "48", "llama-4-maverick-17b-128e"),
        ("DeepSeek-V3-671B", "61", "deepseek-v3"),
        ("llama4-scout", "48", "llama-4-scout-17b-16e"),
    ],
)
def test_a_catalogues_model_is_found_without_punctuation_and_size(name, layers, known):
    unsized = {"model": name, "arch": "moe", "n_layers": layers, "hidden": ""}
    assert model_of(row(**unsized)).name == known


def test_a_name_that_begins_several_of_the_catalogues_is_none_of_them():
    assert named_model("qwen3-999b") is None
    assert named_model("-7b") is None


def test_sizes_that_a_row_leaves_out_are_those_of_the_public_model():
    cells = dict.fromkeys(("hidden", "ffn_hidden", "n_heads", "n_kv_heads", "n_layers"), "")
    model = model_of(row(model="yi-34b", **cells, vocab=""))
    assert (model.num_hidden_layers, model.vocab_size) == (60, 64000)
    assert total_parameters(model) == pytest.approx(34.4e9, rel=0.01)


def test_a_cut_of_a_public_model_keeps_its_experts():
    model = model_of(row(model="grok1-314b", arch="moe", n_layers="2", ffn_hidden="32768"))
    assert model.num_hidden_layers == 2
    assert model.moe is not None
    assert (model.moe.num_experts, model.moe.experts_per_token) == (8, 2)


def test_a_cut_down_model_is_not_the_catalogues():
    with pytest.raises(NotModelledError):
        model_of(row(model="mixtral-8x7b", arch="moe", n_layers="4"))


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"hidden": ""}, "not stated: hidden"),
        ({"vocab": ""}, "not stated: vocab"),
        ({"arch": "hybrid-mamba"}, "layers not in the columns: hybrid-mamba"),
        ({"arch": "moe"}, "number of experts"),
        ({"arch": "moe", "note": "8 experts"}, "number of experts"),
        ({"arch": "dense-mla"}, "dims of latent attention"),
        ({"arch": "dense-mla", "mla_dims": "kv-lora-rank=64"}, "dims of latent attention"),
    ],
)
def test_what_the_columns_do_not_say_is_no_model(columns, reason):
    with pytest.raises(NotModelledError, match=reason):
        model_of(row(**columns))


def test_more_heads_than_the_hidden_dim_are_not_modelled():
    with pytest.raises(NotModelledError, match="n_heads 8192 is more than hidden 4096"):
        model_of(row(n_heads="8192"))


def test_key_value_heads_in_words_are_not_modelled():
    with pytest.raises(NotModelledError, match="not stated: n_kv_heads"):
        model_of(row(n_kv_heads="some"))
