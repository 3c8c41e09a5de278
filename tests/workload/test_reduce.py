from meshfit.workload.reduce import layers_for_every_kind, reductions

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 128256, "bos_token_id": 128000,
}  # fmt: skip


def test_depth_is_cut_first_then_vocabulary_then_width_and_every_step_is_named():
    first, second, third = reductions(LLAMA, fewest_layers=4, multiple=8)
    assert first.config == LLAMA | {"num_hidden_layers": 4}
    assert first.steps == ("num_hidden_layers 32 -> 4",)
    assert second.config["vocab_size"] == 4096
    assert "bos_token_id" not in second.config
    assert third.config["intermediate_size"] == 3584
    assert third.steps == (
        "num_hidden_layers 32 -> 4",
        "vocab_size 128256 -> 4096",
        "intermediate_size 14336 -> 3584",
    )


def test_widths_stay_multiples_of_the_tensor_parallel_degrees():
    for reduced in reductions(LLAMA, fewest_layers=2, multiple=3):
        assert reduced.config["vocab_size"] % 3 == 0 or reduced.config["vocab_size"] == 128256
        assert reduced.config["intermediate_size"] % 3 in (0, 14336 % 3)


def test_enough_layers_stay_to_keep_one_of_every_kind():
    kinds = ["sliding_attention"] * 5 + ["full_attention"]
    config = LLAMA | {"num_hidden_layers": 12, "layer_types": kinds * 2}
    assert layers_for_every_kind(config) == 6
    reduced = next(reductions(config, fewest_layers=2, multiple=1))
    assert reduced.config["num_hidden_layers"] == 6
    assert reduced.config["layer_types"] == kinds


def test_gpt2_names_are_cut_as_well():
    config = {
        "model_type": "gpt2",
        "n_layer": 12,
        "n_embd": 768,
        "n_inner": 3072,
        "vocab_size": 50257,
    }
    *_, smallest = reductions(config, fewest_layers=1, multiple=1)
    assert smallest.config["n_layer"] == 1
    assert smallest.config["n_inner"] == 768


def test_a_model_that_is_small_already_needs_no_step():
    tiny = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "vocab_size": 256,
        "intermediate_size": 16,
    }
    assert [r.steps for r in reductions(tiny, fewest_layers=2, multiple=4)] == [()]
