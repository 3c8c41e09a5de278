"""Adapters beside frozen linears."""

import pytest

from meshfit.errors import InputError
from meshfit.workload.training import AdapterSpec
from tests.run.layouts import CONFIGS


def adapted(model: str, adapter: AdapterSpec):
    from meshfit.run.model.adapters import attach_adapters, freeze_all_but_adapters
    from meshfit.run.model.transformer import Stage, build_causal_lm, family_of

    built, _ = build_causal_lm(CONFIGS[model])
    stage = Stage(built, family_of(CONFIGS[model]), layers=range(4), autocast_dtype=None)
    attach_adapters(stage, adapter)
    freeze_all_but_adapters(stage)
    return stage


@pytest.mark.parametrize("model", ["llama", "gpt2"])
def test_only_factors_of_named_linears_are_trained(model: str) -> None:
    name = {"llama": "q_proj", "gpt2": "c_fc"}[model]
    stage = adapted(model, AdapterSpec(rank=4, targets=(name,)))
    trained = [name for name, p in stage.named_parameters() if p.requires_grad]
    assert len(trained) == 4 * 2
    assert all(f".{name}.lora_" in parameter for parameter in trained)


def test_every_linear_of_a_layer_has_one_where_none_is_named() -> None:
    stage = adapted("llama", AdapterSpec(rank=2))
    trained = sum(p.numel() for p in stage.parameters() if p.requires_grad)
    hidden, width = 32, 64
    assert trained == 4 * 2 * (4 * 2 * hidden + 3 * (hidden + width))


def test_a_linear_that_no_layer_has_is_refused_with_those_it_has() -> None:
    with pytest.raises(InputError, match="no linear query; it has down_proj, gate_proj, k_proj"):
        adapted("llama", AdapterSpec(rank=2, targets=("query",)))


def test_an_adapted_model_begins_as_the_one_it_adapts() -> None:
    import torch

    from meshfit.run.model.adapters import AdaptedLinear, initial_factor

    base = torch.nn.Linear(6, 3)
    linear = AdaptedLinear(base, rank=2).to_empty(device="cpu")
    with torch.no_grad():
        base.weight.fill_(0.5)
        base.bias.zero_()
        for factor in ("lora_A", "lora_B"):
            weight = getattr(linear, factor).weight
            weight.copy_(initial_factor(f"layer.{factor}.weight", weight.shape))
    inputs = torch.arange(12.0).view(2, 6)
    assert torch.equal(linear(inputs), base(inputs))
    assert linear.lora_A.weight.abs().max() > 0


def test_factors_are_found_again_by_name() -> None:
    import torch

    from meshfit.run.model.adapters import initial_factor, name_in_files

    shape = torch.Size((2, 6))
    one = initial_factor("a.lora_A.weight", shape)
    assert torch.equal(one, initial_factor("a.lora_A.weight", shape))
    assert not torch.equal(one, initial_factor("b.lora_A.weight", shape))
    assert name_in_files("a.q_proj.base_layer.weight") == "a.q_proj.weight"
