"""What each engine's profile says agrees with what the rest of meshfit can say of a layout."""

import pytest

from meshfit.engines import PROFILES, engine_profile
from meshfit.errors import InputError
from meshfit.mesh.candidates import RECOMPUTE, SCHEDULES
from meshfit.mesh.rulebook import RULES
from meshfit.mesh.spec import AXES

every_profile = pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)


def test_native_runs_what_candidates_can_say():
    native = engine_profile("native")
    assert native.rank_order == AXES
    assert set(native.schedules) <= set(SCHEDULES)
    assert set(native.recompute) <= set(RECOMPUTE)
    assert native.zero_stages == (0, 1, 2, 3)
    assert native.has_memory_model


def test_an_unknown_engine_comes_with_the_nearest():
    with pytest.raises(InputError, match="unknown engine 'megaton'; did you mean 'megatron'"):
        engine_profile("megaton")
    with pytest.raises(InputError, match="unknown engine 'xyz'; known: native, torchtitan"):
        engine_profile("xyz")


@every_profile
def test_a_profile_names_rules_that_exist_each_once(profile):
    named = profile.rules + profile.warnings
    assert set(named) <= set(RULES)
    assert len(named) == len(set(named))


def test_every_rule_belongs_to_an_engine():
    named = {name for profile in PROFILES.values() for name in profile.rules + profile.warnings}
    assert set(RULES) == named


@pytest.mark.parametrize(
    ("engine", "key", "option"),
    [
        ("native", "tp", "tp"),
        ("torchtitan", "tp", "parallelism.tensor_parallel_degree"),
        ("torchtitan", "dp_shard", "parallelism.data_parallel_shard_degree"),
        ("torchtitan", "sequence_length", "training.seq_len"),
        ("megatron", "tp", "--tensor-model-parallel-size"),
        ("megatron", "etp", "--expert-tensor-parallel-size"),
        ("megatron", "layers_per_virtual_stage", "--num-layers-per-virtual-pipeline-stage"),
        ("deepspeed", "tp", "tensor_parallel.autotp_size"),
        ("deepspeed", "global_batch_size", "train_batch_size"),
        ("accelerate", "ulysses", "parallelism_config_sp_size"),
        ("accelerate", "dp_replicate", "parallelism_config_dp_replicate_size"),
        ("vllm", "dcp", "--decode-context-parallel-size"),
        ("sglang", "attn_dp", "--attention-data-parallel-size"),
    ],
)
def test_options_are_spelt_as_the_engine_spells_them(engine, key, option):
    """The names are those of the releases that the profiles state."""
    assert engine_profile(engine).option(key) == option


@every_profile
def test_the_default_stage_is_one_that_the_engine_runs(profile):
    assert profile.default_zero_stage in profile.zero_stages
    assert profile.cp_method in profile.cp_methods
    assert set(profile.rank_order) == set(AXES)
