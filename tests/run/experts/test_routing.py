"""Our routers choose and weigh as transformers' do."""

import pytest

from tests.run.layouts import CONFIGS

MOE = ("mixtral", "qwen3_moe", "deepseek_v3")


def gate_of(name: str):
    import torch

    from meshfit.run.model.transformer import build_causal_lm

    model, _ = build_causal_lm(CONFIGS[name])
    gate = model.base_model.layers[-1].mlp.gate
    gate._apply(lambda tensor: torch.empty_like(tensor, device="cpu") if tensor.is_meta else tensor)
    torch.manual_seed(0)
    torch.nn.init.normal_(gate.weight)
    if name == "deepseek_v3":
        gate.e_score_correction_bias.uniform_(-0.3, 0.3)
    return gate, model.config


@pytest.mark.parametrize("name", MOE)
def test_choices_and_weights_are_those_of_transformers(name: str) -> None:
    import torch

    from meshfit.run.experts.routing import rule_of

    gate, config = gate_of(name)
    hidden = torch.randn(50, CONFIGS[name]["hidden_size"])
    _, expected_weights, expected = gate(hidden)
    rule = rule_of(config)
    scores = rule.scores(hidden, gate.weight)
    chosen = rule.choose(scores, getattr(gate, "e_score_correction_bias", None))
    weights = rule.weigh(scores, chosen, hidden.dtype)
    assert torch.equal(chosen.sort(dim=1).values, expected.sort(dim=1).values)
    assert torch.allclose(
        torch.zeros_like(scores).scatter(1, chosen, weights),
        torch.zeros_like(scores).scatter(1, expected, expected_weights),
    )


@pytest.mark.parametrize("name", MOE)
def test_a_replayed_choice_is_weighed_by_the_own_scores(name: str) -> None:
    """The weights of choices that are taken from elsewhere are those of the tokens' own scores."""
    import torch

    from meshfit.run.experts.routing import rule_of

    gate, config = gate_of(name)
    hidden = torch.randn(20, CONFIGS[name]["hidden_size"])
    rule = rule_of(config)
    scores = rule.scores(hidden, gate.weight)
    own = rule.choose(scores, getattr(gate, "e_score_correction_bias", None))
    swapped = own.flip(1)
    assert torch.allclose(
        rule.weigh(scores, swapped, hidden.dtype), rule.weigh(scores, own, hidden.dtype).flip(1)
    )
