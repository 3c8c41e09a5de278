"""Legal layouts of serving engines."""

import math

import pytest

from meshfit.cluster.shorthand import read_shorthand
from meshfit.engines import engine_profile
from meshfit.mesh.facts import facts_of
from meshfit.serve.setting.layout import ServingLayout
from meshfit.serve.setting.quantized import served_as
from meshfit.serve.setting.space import layout_violations, serving_space
from meshfit.workload.models import read_model

NODE = read_shorthand("8 H100-SXM")


def space(name, engine="vllm", accelerators=8, weights="auto"):
    model = served_as(read_model(name), weights)
    return serving_space(model, engine_profile(engine), NODE, accelerators)


def rules_broken(name, layout, engine="vllm", weights="auto"):
    facts = facts_of(model=served_as(read_model(name), weights))
    found = layout_violations(layout, facts, engine_profile(engine), NODE)
    return [one.rule for one in found]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
@pytest.mark.parametrize("name", ["llama-3.1-70b", "qwen3-235b-a22b"])
def test_layouts_use_every_accelerator_once_each(engine, name):
    layouts = space(name, engine).layouts
    assert len(layouts) == len(set(layouts)) > 0
    assert all(layout.num_accelerators == 8 for layout in layouts)
    assert all(layout.expert_tp * layout.ep == layout.ranks_per_stage for layout in layouts)


def test_a_dense_model_has_replicas_and_no_attention_groups():
    layouts = space("llama-3.1-70b").layouts
    assert {(one.ep, one.attention_dp) for one in layouts} == {(1, 1)}
    assert ServingLayout(replicas=2, tp=4) in layouts
    assert len(layouts) == math.comb(3 + 2, 2)


def test_vllm_spreads_experts_over_every_rank_or_none():
    eps = {(one.ep, one.ranks_per_stage) for one in space("qwen3-235b-a22b").layouts}
    assert all(ep in (1, ranks) for ep, ranks in eps)
    assert any(one.ep == 4 for one in space("qwen3-235b-a22b", "sglang").layouts)


def test_a_cut_through_a_block_of_scales_is_refused():
    """Qwen3-235B: experts 1,536 wide, scales of 128: tp=8 leaves 192."""
    layout = ServingLayout(tp=8)
    assert rules_broken("qwen3-235b-a22b-fp8", layout) == ["expert_width_keeps_quantization"]
    assert rules_broken("qwen3-235b-a22b", layout) == []
    assert rules_broken("qwen3-235b-a22b-fp8", ServingLayout(tp=8, ep=8)) == []


def test_heads_are_divided_by_the_ranks_that_share_attention_only():
    assert rules_broken("qwen2.5-7b", ServingLayout(tp=8)) == ["attention_heads_divisible"]
    assert rules_broken("deepseek-v3", ServingLayout(attention_dp=8, ep=8)) == []


def test_refused_layouts_are_counted_by_rule():
    assert space("qwen2.5-7b").rejected == {"attention_heads_divisible": 1}
