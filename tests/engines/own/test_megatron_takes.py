"""Megatron-LM's own parser and checks take the arguments that are written for it."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from meshfit.cluster.shorthand import read_shorthand
from meshfit.engines import engine_profile
from meshfit.engines.exports import EXPORTS
from meshfit.engines.handover import Handover
from meshfit.mesh.spec import LayoutSpec
from meshfit.workload.models import read_model
from meshfit.workload.training import PRECISIONS, RuntimeSpec, TrainingSpec

pytestmark = pytest.mark.engines

TAKES = Path(__file__).with_name("megatron_takes.py")
RANKS = 32
NOT_HERE = ("--moe-grouped-gemm",)
"""What asks for CUDA when it is read; rotary fusion asks for Transformer Engine."""

TRAINING = TrainingSpec(
    sequence_length=4096, global_batch_size=128, precision=PRECISIONS["bf16_mixed"]
)
FP8 = RuntimeSpec(
    fp8_recipe="blockwise",
    fp8_parameters=True,
    loss="fused",
    attention="flash",
    attention_dropout=0.1,
    overlap_gradients=True,
    overlap_parameters=True,
    fused_gradient_accumulation=False,
)
LLAMA, QWEN, DEEPSEEK = "llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3"
INTERLEAVED = {"pp": 4, "vpp": 2, "schedule": "interleaved_1f1b"}
CASES = [
    (LLAMA, {"dp_shard": 32, "zero_stage": 1}, {}),
    (LLAMA, {"dp_shard": 32, "zero_stage": 3}, {}),
    (LLAMA, {"dp_replicate": 4, "dp_shard": 8, "zero_stage": 1}, {}),
    (LLAMA, {"tp": 4, "sp": True, "pp": 4, "dp_shard": 2, "zero_stage": 1}, {}),
    (LLAMA, {"pp": 4, "dp_shard": 8, "zero_stage": 1, "stage_layers": (7, 9, 9, 7)}, {}),
    (LLAMA, {"cp": 4, "cp_method": "all_gather", "dp_shard": 8, "zero_stage": 1}, {}),
    (LLAMA, {"dp_shard": 8, "zero_stage": 1, "recompute": "block", **INTERLEAVED}, {}),
    (LLAMA, {"dp_shard": 32, "zero_stage": 1, "recompute": "full", "recompute_layers": 2}, {}),
    (LLAMA, {"dp_shard": 32, "zero_stage": 1, "offload": "cpu"}, {}),
    (QWEN, {"tp": 4, "sp": True, "dp_shard": 8, "ep": 8, "zero_stage": 1}, {}),
    (DEEPSEEK, {"dp_shard": 32, "ep": 8, "zero_stage": 1}, {}),
    ("gpt2", {"dp_replicate": 32}, {"sequence_length": 1024}),
    (
        LLAMA,
        {"dp_shard": 32, "zero_stage": 1},
        {"precision": PRECISIONS["fp8_mixed"], "runtime": FP8},
    ),
    (
        LLAMA,
        {"dp_replicate": 32},
        {"precision": PRECISIONS["fp16_mixed"], "optimizer": "sgd", "max_grad_norm": None},
    ),
    (LLAMA, {"dp_replicate": 32}, {"precision": PRECISIONS["fp32"]}),
]


def command_of(folder, model, layout, changes):
    """Variables and arguments that the exported script starts Megatron with."""
    given = Handover(
        name="try",
        layout=layout,
        model=read_model(model),
        training=replace(TRAINING, **changes),
        topology=read_shorthand("4x8 H100-SXM"),
        profile=engine_profile("megatron"),
        prediction=None,
        steps=10,
    )
    (folder / "train.sh").write_text(EXPORTS["megatron"](given)["train.sh"])
    (folder / "torchrun").write_text('#!/bin/bash\nenv -0\nprintf "\\0"\nprintf "%s\\0" "$@"\n')
    (folder / "torchrun").chmod(0o755)
    done = subprocess.run(
        ["bash", "train.sh"],
        cwd=folder,
        env={"PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    variables, _, words = done.stdout.partition("\0\0")
    listed = words.split("\0")[:-1]
    program = next(at for at, word in enumerate(listed) if word.endswith("pretrain_gpt.py"))
    kept = [word for word in listed[program + 1 :] if word not in NOT_HERE]
    ranks = {"WORLD_SIZE": str(RANKS), "RANK": "0", "LOCAL_RANK": "0"}
    stated = dict(pair.split("=", 1) for pair in variables.split("\0"))
    return [{**stated, **ranks}, [*kept, "--no-rope-fusion"]]


def answers(folder, cases):
    commands = [
        command_of(folder, model, LayoutSpec(**layout), more) for model, layout, more in cases
    ]
    words = ["-W", "ignore", str(TAKES), os.environ["MESHFIT_MEGATRON_CORE"]]
    done = subprocess.run(
        [os.environ["MESHFIT_ENGINE_PYTHON"], *words],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_its_parser_and_its_checks_take_every_argument(tmp_path):
    assert dict(enumerate(answers(tmp_path, CASES))) == dict.fromkeys(range(len(CASES)), "")


def test_what_our_rules_refuse_is_refused(tmp_path):
    """Rule ``attention_heads_divisible``."""
    [said] = answers(tmp_path, [(LLAMA, {"tp": 3, "sp": True}, {})])
    assert "divisible" in said
