import pytest

from meshfit.errors import InputError
from meshfit.validate.frameworks import read_job
from meshfit.validate.frameworks.megatron_core import bert_extra, parse_arguments
from meshfit.validate.rows import NotModelledError
from tests.validate.builders import row

LINE = (
    "--num-layers 12 --tensor-model-parallel-size 2 --swiglu --bf16 "
    "--hierarchical-context-parallel-sizes 2 2 --seq-length=1024"
)


def job(line, **columns):
    bare = dict.fromkeys(
        ("gated_mlp", "norm", "pos_embedding", "tied_embeddings", "linear_bias"), ""
    )
    cells = bare | {"framework": "Megatron-Core", "model": "gpt/test", "engine_args": line}
    return read_job(row(**(cells | columns)))


def test_arguments_are_pairs_lists_and_flags():
    arguments = parse_arguments(LINE)
    assert arguments.text("--num-layers") == "12"
    assert arguments.text("--seq-length") == "1024"
    assert arguments.text("--hierarchical-context-parallel-sizes") == "2 2"
    assert arguments.is_on("--swiglu")
    assert "--fp16" not in arguments


def test_a_negative_value_is_a_value():
    arguments = parse_arguments("--a -1 --b 2")
    assert (arguments.text("--a"), arguments.text("--b")) == ("-1", "2")


def test_the_model_follows_from_arguments_where_columns_are_empty():
    model = job("--swiglu --normalization RMSNorm --position-embedding-type rope").model
    assert (model.mlp.gated, model.norm, model.learned_positions) == (True, "rms_norm", 0)


def test_without_arguments_the_scripts_defaults_hold():
    found = job("--max-position-embeddings 1024", attn="")
    assert not found.model.mlp.gated
    assert found.model.mlp.bias
    assert found.model.learned_positions == 1024
    assert found.training.runtime.hidden_dropout == 0.1


def test_columns_go_before_arguments():
    assert not job("--swiglu", gated_mlp="0").model.mlp.gated


def test_the_printed_memory_is_that_of_the_last_rank():
    assert job("").memory_of == "last"


def test_a_head_of_another_width_than_hidden_over_heads():
    assert job("--kv-channels 128", hidden="3072", n_heads="32").model.attention.head_dim == 128


def test_a_tokenizer_that_names_its_size_gives_the_vocabulary():
    line = "--tokenizer-model ${DATA_PATH}/utils/nemotron_2_256k.model"
    assert job(line, vocab="").model.vocab_size == 256_000


def test_a_batch_that_grows_is_taken_at_its_start():
    found = job("--step-batch-size-schedule 0:384 200B:768", gbs="")
    assert found.training.global_batch_size == 384


def test_a_model_wider_than_a_node_runs_on_as_many_as_hold_it():
    line = "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4"
    found = job(line, tp="4", pp="4", dp="", n_gpus="")
    assert found.layout.data_parallel_size == 1
    assert found.topology.num_accelerators == 16


def test_what_memory_depends_on_beyond_a_layout_is_told_to_the_engine():
    options = job("--attention-softmax-in-fp32", attn="local/local").profile.megatron
    assert not options.transformer_engine
    assert options.softmax_in_fp32


def test_bert_has_a_head_of_its_own_and_a_pooler():
    found = job("", model="bert/test", seq_len="512", hidden="1024", n_heads="16", n_kv_heads="16")
    names = {tensor.name for tensor in found.model.extra}
    assert {"pooler.dense.weight", "lm_head.dense.weight", "binary_head.bias"} <= names
    assert found.model.head_bias


def test_bert_without_a_binary_head_has_no_pooler():
    names = {tensor.name for tensor in bert_extra(64, binary_head=False)}
    assert not any("pooler" in name or "tokentype" in name for name in names)


def test_another_script_is_a_reason():
    with pytest.raises(NotModelledError, match="script not modelled: t5"):
        job("", model="t5/test")


EXPERTS = "--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 512 --disable-bias-linear"


def test_arguments_give_the_experts():
    model = job(f"{EXPERTS} --moe-shared-expert-intermediate-size 256", arch="moe").model
    moe = model.moe
    assert (moe.num_experts, moe.experts_per_token) == (8, 2)
    assert (moe.expert.intermediate_size, moe.shared.intermediate_size) == (512, 256)


def test_layers_with_experts_follow_the_frequency():
    def layers(pattern, count):
        line = f"{EXPERTS} --moe-layer-freq {pattern}"
        model = job(line, arch="moe", n_layers=str(count)).model
        return tuple(layer.moe is not None for layer in model.layers)

    assert layers("2", 4) == (True, False, True, False)
    assert layers("([0]*1+[1]*3)", 4) == (False, True, True, True)
    assert layers("[0,1]", 2) == (False, True)
    with pytest.raises(InputError, match="moe-layer-freq"):
        layers("([1]*3)", 4)


def test_heads_for_multi_token_prediction_are_a_layer_and_a_projection_each():
    model = job("--mtp-num-layers 1").model
    assert model.mtp.depth == 1
    assert model.mtp.layers == model.layers[-1:]
