"""What the runner refuses, and which stages a rank has."""

import pytest

from meshfit.engines import engine_profile
from meshfit.errors import InputError
from meshfit.mesh.facts import facts_of
from meshfit.mesh.rules import violations
from meshfit.mesh.spec import make_layout
from meshfit.workload.families import read_family
from tests.run.layouts import CASES, CONFIGS
from tests.run.sessions import SESSIONS


@pytest.mark.parametrize(
    ("model", "keys", "message"),
    [
        ("llama", {"cp": 8, "cp_method": "all_to_all"}, "cp_method: 8 ranks cannot trade 4 query"),
        ("llama", {"ep": 2, "dp_shard": 2}, "ep: this model has no experts; use ep=1"),
        ("mixtral", {"etp": 2, "tp": 2}, "etp: without ep all of tp cuts the experts as it is"),
        ("mixtral", {"ep": 2, "etp": 4, "tp": 2, "dp_shard": 4}, "etp: .* use a divisor of tp=2"),
        ("mixtral", {"ep": 2, "dp_shard": 2, "zero_stage": 1}, "plain replicas all hold the same"),
        ("mixtral", {"ep": 2, "tp": 2, "sp": False}, "would all send the same tokens; use sp=true"),
        ("mixtral_auxiliary", {"pp": 2}, "pp: the routers' auxiliary loss takes means over all"),
        ("llama", {"offload": "cpu"}, "CPU ranks have them in host memory as it is"),
        (
            "llama",
            {"recompute": "full", "recompute_layers": 2},
            "full checkpoints layers one by one",
        ),
        (
            "llama",
            {"pp": 2, "vpp": 2, "schedule": "zbv_zero_bubble", "dp_shard": 2},
            "zbv_zero_bubble computes gradients of weights .* use zero_stage=2",
        ),
        ("llama", {"dp_shard": 2, "zero_stage": 0}, "zero_stage: 0 shards nothing; use 1, 2 or 3"),
    ],
)
def test_what_cannot_be_run_is_refused_with_what_can(model: str, keys: dict, message: str) -> None:
    from meshfit.run.parallelize import check_runnable

    with pytest.raises(InputError, match=message):
        check_runnable(CONFIGS[model], make_layout(keys))


@pytest.mark.parametrize("name", SESSIONS)
def test_what_parity_proves_is_refused_neither_by_the_runner_nor_by_its_rules(name: str) -> None:
    from meshfit.run.parallelize import check_runnable

    for case in SESSIONS[name].cases:
        check_runnable(CONFIGS[case.model], case.layout)
        model = read_family(case.model, CONFIGS[case.model])
        facts = facts_of(model=model, training=case.training, layout=case.layout)
        broken = {one.rule for one in violations(facts, engine_profile("native"))}
        assert broken <= {"zero1_without_replicas"}, (
            case.name
        )  # which runs, but is not worth a plan
        assert case.layout.world_size == SESSIONS[name].num_ranks, case.name


def test_a_world_of_another_size_is_refused() -> None:
    from meshfit.run.mesh import build_mesh

    with pytest.raises(InputError, match="layout tp=2 needs 2 ranks, but 1 were started"):
        build_mesh(make_layout({"tp": 2}), "cpu")


def test_a_global_batch_that_does_not_divide_is_refused() -> None:
    from meshfit.run.trainer import check_batch

    with pytest.raises(InputError, match=r"global_batch_size=8 is not a multiple of .* 3 x 1"):
        check_batch(make_layout({"dp_replicate": 3}), CASES[0].training)


@pytest.mark.parametrize("model", ["llama_tied", "qwen3", "mistral"])
def test_key_value_heads_are_divided_or_shared_by_whole_groups_of_ranks(model: str) -> None:
    from meshfit.run.model.transformer import build_causal_lm
    from meshfit.run.tensor.plan import check_divisible

    config = build_causal_lm(CONFIGS[model] | {"num_attention_heads": 12, "hidden_size": 48,
                                               "num_key_value_heads": 6, "intermediate_size": 48})[0].config  # fmt: skip
    for tp in (2, 3, 6, 12):
        check_divisible(config, tp)
    with pytest.raises(InputError, match="tp=4 does not divide num_key_value_heads=6"):
        check_divisible(config, 4)


def test_packed_heads_are_not_shared() -> None:
    from meshfit.run.model.transformer import build_causal_lm
    from meshfit.run.tensor.plan import check_divisible

    config = build_causal_lm(CONFIGS["phi3"])[0].config
    with pytest.raises(InputError, match="tp=4 does not divide num_key_value_heads=2"):
        check_divisible(config, 4)
    check_divisible(config, 2)
