"""How latent attention is cut over tensor-parallel ranks: what each rank holds of one model."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from meshfit.dryrun.world import fake_world
from meshfit.errors import InputError
from meshfit.mesh.spec import make_layout
from meshfit.run.mesh import build_mesh
from meshfit.run.model.transformer import Stage, build_causal_lm
from meshfit.run.parallelize import build_bare_model
from meshfit.run.tensor.plan import check_divisible
from meshfit.workload.training import PRECISIONS, AdapterSpec
from tests.run.layouts import CONFIGS

TP = 2
HEADS = 4
WHOLE, BY_ROW, BY_COLUMN = "R", "S(0)", "S(1)"
LATENTS = {
    "q_a_proj": WHOLE,
    "q_a_layernorm": WHOLE,
    "q_b_proj": BY_ROW,
    "kv_a_proj_with_mqa": WHOLE,
    "kv_a_layernorm": WHOLE,
    "kv_b_proj": BY_ROW,
    "o_proj": BY_COLUMN,
}
FULL_QUERIES = {"q_proj": BY_ROW} | {n: p for n, p in LATENTS.items() if not n.startswith("q_")}


@contextmanager
def stage_of_one_rank(model: str, **options: Any) -> Iterator[Stage]:
    layout = make_layout({"tp": TP, "ep": TP, "zero_stage": 0})
    with fake_world(rank=1, world_size=TP):
        mesh = build_mesh(layout, "cpu")
        built = build_bare_model(CONFIGS[model], mesh, PRECISIONS["fp32"], **options)
        yield built.stages[0]


def placements(stage: Stage) -> Mapping[str, str]:
    """Name below the second layer's attention -> how its weight lies over ranks."""
    below = "model.layers.1.self_attn."
    return {
        name.removeprefix(below).removesuffix(".weight"): str(parameter.placements[0])
        for name, parameter in stage.parameters_by_name().items()
        if name.startswith(below) and name.endswith(".weight")
    }


@pytest.mark.parametrize(
    ("model", "expected"),
    [("deepseek_v3", LATENTS), ("deepseek_v3_full_queries", FULL_QUERIES)],
)
def test_what_makes_latents_is_whole_and_what_expands_them_is_cut_over_heads(
    model: str, expected: Mapping[str, str]
) -> None:
    with stage_of_one_rank(model) as stage:
        assert placements(stage) == expected
        assert {layer.self_attn.num_heads for layer in stage.layers} == {HEADS // TP}


def test_shared_experts_and_dense_layers_are_cut_like_any_mlp() -> None:
    with stage_of_one_rank("deepseek_v3") as stage:
        of = stage.parameters_by_name()
        for mlp in ("layers.0.mlp", "layers.1.mlp.shared_experts"):
            assert str(of[f"model.{mlp}.up_proj.weight"].placements[0]) == BY_ROW
            assert str(of[f"model.{mlp}.down_proj.weight"].placements[0]) == BY_COLUMN


def test_the_factor_of_an_adapter_on_the_divided_side_is_divided() -> None:
    with stage_of_one_rank("deepseek_v3", adapter=AdapterSpec(rank=4)) as stage:
        found = placements(stage)
        factors = {
            linear: (found[f"{linear}.lora_A"], found[f"{linear}.lora_B"])
            for linear in LATENTS
            if "layernorm" not in linear
        }
        trained = {n for n, p in stage.parameters_by_name().items() if p.requires_grad}
    assert factors == {
        "q_a_proj": (WHOLE, WHOLE),
        "q_b_proj": (WHOLE, BY_ROW),
        "kv_a_proj_with_mqa": (WHOLE, WHOLE),
        "kv_b_proj": (WHOLE, BY_ROW),
        "o_proj": (BY_COLUMN, WHOLE),
    }
    assert all("lora_" in name for name in trained)


def test_widths_that_ranks_cannot_share_are_refused() -> None:
    config = build_causal_lm(CONFIGS["deepseek_v3"])[0].config
    check_divisible(config, HEADS)
    with pytest.raises(InputError, match="tp=8 does not divide num_attention_heads=4"):
        check_divisible(config, 8)
    config.moe_intermediate_size = 30
    with pytest.raises(InputError, match="tp=4 does not divide n_shared_experts x moe_intermedia"):
        check_divisible(config, HEADS)
