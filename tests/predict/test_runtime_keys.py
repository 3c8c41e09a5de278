"""Every key of ``runtime:`` moves memory and time the right way on a CUDA engine that knows it."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from meshfit.cluster.files import read_topology
from meshfit.engines import engine_profile
from meshfit.funnel.check.inert import VALUES
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.spec import make_layout
from meshfit.predict.estimate import estimate
from meshfit.workload.models import read_model
from meshfit.workload.training import PRECISIONS, RuntimeSpec, TrainingSpec

H100 = read_topology("2x8 H100-SXM", Path())
DENSE, EXPERTS = read_model("llama-3.1-8b"), read_model("qwen3-30b-a3b")

FSDP = {"dp_shard": 16}
DDP = {"dp_replicate": 16}
TP = {"tp": 8, "dp_replicate": 2}
ZERO_1 = {"dp_shard": 16, "zero_stage": 1}
ZERO_2 = {"dp_shard": 16, "zero_stage": 2, "recompute": "full"}
PP = {"pp": 2, "dp_replicate": 8}
EP = {"dp_shard": 16, "zero_stage": 1, "ep": 8}


def figures(
    engine, layout, *, precision="bf16_mixed", model=DENSE, topology=H100, batch=64, **runtime
):
    """Bytes and seconds on the fullest rank, and bytes on its host."""
    training = TrainingSpec(
        sequence_length=4096,
        global_batch_size=batch,
        precision=PRECISIONS[precision],
        runtime=RuntimeSpec(**runtime),
    )
    one = Candidates.from_layouts([make_layout(layout)])
    found = estimate(model, training, topology, one, engine_profile(engine))
    return {
        "memory": found.memory_middle_bytes[0],
        "time": found.step_middle_s[0],
        "host": found.memory_host[0],
    }


UNFUSED = {"attention": "unfused"}
FP8 = {"precision": "fp8_mixed"}

CASES = [
    # key, engine, layout, from, to, what grows, what shrinks, options
    ("compile", "native", FSDP, False, True, "", "memory time", {}),
    ("compile", "torchtitan", FSDP, False, True, "", "memory time", {}),
    ("attention", "native", FSDP, "flash", "flash1", "time", "", {}),
    ("attention", "native", FSDP, "flash", "cudnn", "", "time", {}),
    ("attention", "megatron", DDP, "cudnn", "flash", "time", "", {}),
    ("attention", "deepspeed", FSDP, "flash", "unfused", "memory time", "", {}),
    ("loss", "native", FSDP, "plain", "fused", "", "memory time", {}),
    ("loss", "torchtitan", FSDP, "plain", "chunked", "", "memory", {}),
    ("allocator", "native", FSDP, "default", "expandable", "", "memory", {}),
    ("allocator", "megatron", DDP, "default", "expandable", "", "memory", {}),
    ("attention_dropout", "native", FSDP, 0.0, 0.1, "memory time", "", UNFUSED),
    ("attention_dropout", "megatron", DDP, 0.0, 0.1, "memory time", "", UNFUSED),
    ("hidden_dropout", "megatron", DDP, 0.0, 0.1, "memory time", "", {}),
    ("overlap_gradients", "native", DDP, True, False, "time", "", {}),
    ("overlap_gradients", "megatron", ZERO_1, True, False, "time", "", {}),
    ("overlap_parameters", "megatron", ZERO_1, True, False, "time", "", {}),
    ("overlap_tensor_parallel", "torchtitan", TP, False, True, "", "memory time", {}),
    ("overlap_tensor_parallel", "megatron", TP, False, True, "memory", "time", {}),
    ("fused_gradient_accumulation", "megatron", PP, True, False, "memory", "", {}),
    ("bucket_bytes", "deepspeed", ZERO_2, 2**20, 2**31, "memory", "", {"loss": "chunked"}),
    ("optimizer_in_backward", "native", FSDP, False, True, "", "memory", {"batch": 16}),
    ("paged_optimizer", "native", FSDP, False, True, "host", "memory", {}),
    ("fp8_recipe", "torchtitan", FSDP, "tensorwise", "rowwise", "time", "", FP8),
    ("fp8_recipe", "megatron", DDP, "delayed", "tensorwise", "time", "", FP8),
    ("fp8_parameters", "megatron", ZERO_1, False, True, "", "memory time", FP8),
    ("fp8_parameters", "torchtitan", FSDP, False, True, "", "time", FP8),
    ("communication_sms", "native", FSDP, 0.0, 0.2, "time", "", {}),
    ("communication_sms", "megatron", ZERO_1, 0.0, 0.2, "time", "", {"overlap_gradients": True}),
    ("expert_imbalance", "megatron", EP, 1.0, 1.5, "time", "", {"model": EXPERTS}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}-{case[4]}")
def test_a_key_moves_what_it_should(case):
    key, engine, layout, before, after, grows, shrinks, options = case
    was = figures(engine, layout, **options | {key: before})
    now = figures(engine, layout, **options | {key: after})
    for name in ("memory", "time"):
        if name in grows.split():
            assert now[name] > was[name], name
        elif name in shrinks.split():
            assert now[name] < was[name], name
        elif name == "memory":
            assert now[name] == was[name]
    assert (now["host"] > was["host"]) == ("host" in grows)


OF_ROUTING = {"expert_capacity_factor", "router_bias_rate"}
"""What the runner's routers do; predictions route evenly, as ``expert_imbalance`` says."""


def test_every_key_has_a_case_and_values_to_try():
    keys = {f.name for f in fields(RuntimeSpec)}
    assert {case[0] for case in CASES} | OF_ROUTING == keys == set(VALUES)


@pytest.mark.parametrize("engine", ["native", "torchtitan", "megatron", "deepspeed"])
def test_a_power_limit_slows_computation_and_none_above_what_it_draws_does(engine):
    def limited(watts):
        accelerator = replace(H100.accelerator, power_limit_w=watts)
        return figures(engine, FSDP, topology=replace(H100, accelerator=accelerator))

    plain = figures(engine, FSDP)
    assert limited(450.0)["time"] > limited(600.0)["time"] > plain["time"]
    assert limited(1000.0) == plain
    assert limited(450.0)["memory"] == plain["memory"]


@pytest.mark.parametrize("engine", ["torchtitan", "megatron", "deepspeed"])
def test_states_on_the_host_spare_memory_and_cost_time(engine):
    plain, offloaded = (figures(engine, FSDP | {"offload": where}) for where in ("none", "cpu"))
    assert offloaded["memory"] < plain["memory"]
    assert offloaded["time"] > plain["time"]
    assert offloaded["host"] > plain["host"] == 0


def test_a_low_precision_of_matmuls_is_faster():
    for engine in ("native", "torchtitan", "megatron", "deepspeed"):
        assert figures(engine, FSDP, **FP8)["time"] < figures(engine, FSDP)["time"]
