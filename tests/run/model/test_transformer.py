"""Models built from raw configs, and their stages."""

import pytest

from meshfit.errors import InputError
from meshfit.mesh.spec import make_layout
from tests.run.layouts import CONFIGS


def build(name: str, **changes):
    from meshfit.run.model.transformer import build_causal_lm

    return build_causal_lm(CONFIGS[name] | changes)


def stage_of(name: str, layers: range):
    from meshfit.run.model.transformer import Stage, family_of

    return Stage(build(name)[0], family_of(CONFIGS[name]), layers=layers, autocast_dtype=None)


def materialise(stage):
    import torch

    torch.manual_seed(0)
    stage._apply(lambda t: torch.empty_like(t, device="cpu") if t.is_meta else t)
    stage.tie_head()
    for parameter in stage.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    return stage


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_on_meta_and_buffers_are_real(name: str) -> None:
    model, _ = build(name)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert not any(buffer.is_meta for buffer in model.buffers())


def test_rotary_frequencies_are_those_of_hugging_face() -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    ours, _ = build("llama")
    theirs = LlamaForCausalLM(LlamaConfig(**CONFIGS["llama"]))
    assert torch.equal(ours.model.rotary_emb.inv_freq, theirs.model.rotary_emb.inv_freq)


def test_building_leaves_pytorch_as_it_was() -> None:
    from torch import nn

    before = nn.Module.register_parameter
    build("llama")
    assert nn.Module.register_parameter is before


def test_dropout_that_only_the_family_default_has_is_set_to_zero_and_told() -> None:
    from torch import nn

    model, disabled = build("gpt2")
    assert {"attn_pdrop", "embd_pdrop", "resid_pdrop"} <= set(disabled)
    assert set(disabled.values()) == {0.1}
    assert all(module.p == 0 for module in model.modules() if isinstance(module, nn.Dropout))


def test_a_model_without_dropout_reports_none() -> None:
    assert build("llama")[1] == {}


def test_attention_dropout_of_a_config_is_set_to_zero() -> None:
    model, disabled = build("llama", attention_dropout=0.2)
    assert disabled == {"attention_dropout": 0.2}
    assert model.model.layers[0].self_attn.attention_dropout == 0


def test_unknown_family_is_refused_with_those_that_run() -> None:
    from meshfit.run.model.transformer import build_causal_lm

    with pytest.raises(InputError, match="'t5' cannot be run; the runner knows llama"):
        build_causal_lm({"model_type": "t5"})


def test_a_config_that_transformers_refuses_is_wrong_input() -> None:
    with pytest.raises(InputError, match="transformers cannot build LlamaForCausalLM"):
        build("llama", hidden_size="wide")


def test_stages_share_out_the_parameters_and_keep_their_names() -> None:
    whole = set(stage_of("llama", range(4)).parameters_by_name())
    parts = [
        set(stage_of("llama", layers).parameters_by_name()) for layers in (range(1), range(1, 4))
    ]
    assert parts[0] | parts[1] == whole
    assert not parts[0] & parts[1]
    assert "model.embed_tokens.weight" in parts[0]
    assert {"model.norm.weight", "lm_head.weight", "model.layers.3.mlp.up_proj.weight"} <= parts[1]


def test_stages_one_after_another_give_the_logits_of_hugging_face() -> None:
    import torch

    whole = materialise(stage_of("qwen3", range(4)))
    first, last = stage_of("qwen3", range(3)), stage_of("qwen3", range(3, 4))
    weights = whole.model.state_dict()
    for part in (first, last):
        part._apply(lambda t: torch.empty_like(t, device="cpu") if t.is_meta else t)
        part.model.load_state_dict(weights, strict=False)
    tokens = torch.arange(16).view(2, 8)
    expected = whole.model(input_ids=tokens, use_cache=False).logits
    assert torch.equal(whole(tokens), expected)
    assert torch.equal(last(first(tokens)), expected)


def test_a_tied_head_stays_tied_when_both_are_replaced() -> None:
    stage = materialise(stage_of("llama_tied", range(4)))
    assert stage.head.weight is stage.embedding.weight
    assert "lm_head.weight" not in stage.parameters_by_name()


@pytest.mark.parametrize(
    ("policy", "runs"),
    [("full", 8), ("operations", 8), ("alternate", 6), ("block", 5), ("selective", 4)],
)
def test_recompute_gives_the_same_gradients_and_runs_some_layers_twice(
    policy: str, runs: int
) -> None:
    import torch

    from meshfit.run.model.recompute import apply_recompute

    calls, gradients = [], []
    for keys in ({}, {"recompute": policy}):
        stage = materialise(stage_of("llama", range(4)))
        apply_recompute(stage, make_layout(keys))
        count = 0

        def counted(*_args) -> None:
            nonlocal count
            count += 1

        for layer in stage.layers:
            layer.mlp.register_forward_pre_hook(counted)
        stage(torch.arange(16).view(2, 8)).sum().backward()
        calls.append(count)
        gradients.append(stage.embedding.weight.grad)
    assert calls == [4, runs]
    assert torch.equal(*gradients)


def test_autocast_computes_in_bfloat16_over_fp32_parameters() -> None:
    import torch

    from meshfit.run.model.transformer import Stage, family_of

    stage = Stage(
        build("llama")[0],
        family_of(CONFIGS["llama"]),
        layers=range(4),
        autocast_dtype=torch.bfloat16,
    )
    logits = materialise(stage)(torch.arange(16).view(2, 8))
    assert logits.dtype == torch.bfloat16
    assert {p.dtype for p in stage.parameters()} == {torch.float32}
