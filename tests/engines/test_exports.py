"""What is written for an engine says the same layout when it is read back."""

import ast
import os
import re
import subprocess
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from meshfit.cluster.shorthand import read_shorthand
from meshfit.engines import engine_profile
from meshfit.engines.exports import EXPORTS, PROFILE_OF
from meshfit.engines.handover import Handover
from meshfit.engines.layout_options import can_write
from meshfit.engines.recognise import recognise
from meshfit.errors import InputError
from meshfit.funnel.sweep.handover import files_with_jobs
from meshfit.job.layout import layout_of_keys
from meshfit.mesh.facts import facts_of
from meshfit.mesh.generate import generate
from meshfit.mesh.rules import violations
from meshfit.mesh.search import SearchSpec
from meshfit.mesh.spec import LayoutSpec
from meshfit.workload.counts import total_parameters
from meshfit.workload.models import read_model
from meshfit.workload.training import PRECISIONS, AdapterSpec, RuntimeSpec, TrainingSpec

TRAINING = TrainingSpec(
    sequence_length=4096, global_batch_size=128, precision=PRECISIONS["bf16_mixed"]
)
CLUSTER = read_shorthand("4x8 H100-SXM")
SEARCH = SearchSpec(micro_batch_size=(1, 2), vpp=(1, 2))
MODELS = {
    "megatron": ("llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3"),
    "megatron_bridge": ("llama-3.1-8b", "qwen3-235b-a22b", "deepseek-v3"),
    "torchtitan": ("llama-3.1-8b", "deepseek-v3"),
    "deepspeed": ("llama-3.1-8b",),
    "accelerate": ("llama-3.1-8b", "qwen3-8b"),
}
CASES = [(engine, model) for engine, models in MODELS.items() for model in models]
LAYOUTS_OF_A_CASE = 40
RELEASES = {"megatron_bridge": "megatron-bridge 0.6.2"}
"""What files are written for, where that is another library than their profile's."""


def profile_of(engine):
    return engine_profile(PROFILE_OF.get(engine, engine))


def handover(engine, model, layout):
    return Handover(
        name="try",
        layout=layout,
        model=read_model(model),
        training=TRAINING,
        topology=CLUSTER,
        profile=profile_of(engine),
        prediction=None,
        steps=10,
    )


def legal_layouts(engine, model):
    profile = profile_of(engine)
    space = generate(read_model(model), TRAINING, CLUSTER, profile, SEARCH).candidates
    picks = np.linspace(0, len(space) - 1, LAYOUTS_OF_A_CASE).astype(int)
    return [space.layout(int(index)) for index in dict.fromkeys(picks)]


@pytest.mark.parametrize(("engine", "model"), CASES)
def test_layouts_come_back_as_they_were(engine, model):
    written = 0
    for layout in legal_layouts(engine, model):
        try:
            files = EXPORTS[engine](handover(engine, model, layout))
        except InputError:
            continue
        written += 1
        text = next(t for n, t in files.items() if n.endswith((".sh", ".py", ".json", ".yaml")))
        form = recognise(text)
        read = form.read(text, layout.world_size)
        assert read.unknown == (), layout.label  # what the header calls "names checked"
        again = layout_of_keys(
            {**read.layout, "micro_batch_size": _micro_batch(read, layout)}, profile_of(engine)
        )
        assert again.label == _as_its_file_says(engine, layout).label
        assert read.workload.get("global_batch", 128) == 128
    assert written >= LAYOUTS_OF_A_CASE // 8


def _as_its_file_says(engine, layout):
    """Recomputation is the model's where no key of the file is for it."""
    outside = engine == "deepspeed" or (engine == "accelerate" and layout.dp_shard * layout.cp == 1)
    return replace(layout, recompute="none") if outside else layout


def _micro_batch(read, layout):
    """Accelerate's file has none: it is the script's."""
    return (
        layout.micro_batch_size if read.engine == "accelerate" else read.layout["micro_batch_size"]
    )


@pytest.mark.parametrize(("method", "theirs"), [("ring", "alltoall"), ("all_gather", "allgather")])
def test_how_accelerate_exchanges_keys_comes_back(method, theirs):
    """torch's rotation by ``alltoall`` passes keys round a ring; it is no exchange of heads."""
    layout = LayoutSpec(dp_shard=8, cp=4, cp_method=method, zero_stage=3)
    text = EXPORTS["accelerate"](handover("accelerate", "llama-3.1-8b", layout))["accelerate.yaml"]
    assert f"parallelism_config_cp_comm_strategy: {theirs}" in text
    assert recognise(text).read(text, 32).layout["cp_method"] == method


@pytest.mark.parametrize("model", MODELS["megatron"])
def test_a_model_comes_back_with_as_many_parameters(model):
    layout = LayoutSpec(dp_shard=32, zero_stage=1)
    text = EXPORTS["megatron"](handover("megatron", model, layout))["train.sh"]
    again = recognise(text).read(text, 32).model
    asked = read_model(model)
    assert total_parameters(again) == pytest.approx(total_parameters(asked), rel=1e-6)


@pytest.mark.parametrize("engine", EXPORTS)
def test_every_file_names_the_layout_the_release_and_its_status(engine):
    layout = LayoutSpec(dp_shard=32, zero_stage=3, recompute="full")
    files = EXPORTS[engine](handover(engine, "llama-3.1-8b", layout))
    profile = profile_of(engine)
    release = RELEASES.get(engine, f"{profile.name} {profile.version}")
    said = "\n".join(files.values())
    for words in (layout.label, release, "Status: names checked"):
        assert words in said


@pytest.mark.parametrize(
    ("engine", "names"),
    [
        ("megatron", ("train.sh", "train.sbatch")),
        ("torchtitan", ("launch.sh", "launch.sbatch")),
        ("megatron_bridge", ("launch.sh", "launch.sbatch")),
    ],
)
def test_scripts_are_scripts_and_several_hosts_have_a_slurm_job(engine, names, tmp_path):
    given = handover(engine, "llama-3.1-8b", LayoutSpec(dp_shard=32, zero_stage=3))
    files = files_with_jobs(given, (), engine)
    profile = profile_of(engine)
    release = RELEASES.get(engine, f"{profile.name} {profile.version}")
    for name in names:
        assert f"for {release}." in files[name]
        (tmp_path / name).write_text(files[name])
        subprocess.run(["bash", "-n", str(tmp_path / name)], check=True)


@pytest.mark.parametrize("model", MODELS["megatron"])
def test_megatron_is_given_every_argument_as_it_is_written(model, tmp_path):
    """Whatever lies beside the script: ``--moe-layer-freq ([0]*3+[1]*58)`` is no pattern of files."""
    layout = LayoutSpec(dp_shard=32, zero_stage=1, recompute="operations")
    text = EXPORTS["megatron"](handover("megatron", model, layout))["train.sh"]
    (tmp_path / "train.sh").write_text(text)
    (tmp_path / "(0x3+1y58)").touch()
    (tmp_path / "torchrun").write_text('#!/bin/bash\nprintf "%s\\0" "$@"\n')
    (tmp_path / "torchrun").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "train.sh", "two words"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    words = done.stdout.split("\0")[:-1]
    assert words[-1] == "two words"
    assert words[words.index("--recompute-modules") + 1] == "layernorm"
    if "--moe-layer-freq" in words:
        assert words[words.index("--moe-layer-freq") + 1] == "([0]*3+[1]*58)"


@pytest.mark.parametrize(
    ("model", "modules"),
    [
        ("qwen3-235b-a22b", ["layernorm", "moe_act"]),
        ("deepseek-v3", ["layernorm", "moe_act", "mla_up_proj"]),
    ],
)
def test_megatron_is_asked_for_modules_that_the_model_has(model, modules):
    layout = LayoutSpec(dp_shard=32, zero_stage=1, recompute="operations")
    script, recipe = (
        "".join(EXPORTS[engine](handover(engine, model, layout)).values())
        for engine in ("megatron", "megatron_bridge")
    )
    assert f"--recompute-modules {' '.join(modules)}\n" in script
    assert f"config.model.recompute_modules = {modules}\n" in recipe


ODD_NAME = 'a "b" $(touch pwned) `touch pwned`\ntouch pwned; é \'c\' """ \\'


@pytest.mark.parametrize("engine", EXPORTS)
def test_no_name_of_a_job_gets_out_of_its_quotes(engine, tmp_path, monkeypatch):
    plain = handover(engine, "llama-3.1-8b", LayoutSpec(dp_shard=32, zero_stage=3))
    given = replace(plain, name=ODD_NAME)
    files = files_with_jobs(given, (), engine)
    before = files_with_jobs(replace(plain, name="x"), (), engine)
    assert [len(text.splitlines()) for text in files.values()] == [
        len(text.splitlines()) for text in before.values()
    ]
    for name, text in files.items():
        assert "touch pwned" not in text
        assert re.fullmatch(r"[\w.]+", name, flags=re.ASCII)
        if name.endswith(".py"):
            ast.parse(text)
            assert name.removesuffix(".py").isidentifier()


BASES = (
    LayoutSpec(dp_shard=32, zero_stage=3),
    LayoutSpec(dp_shard=32, zero_stage=3, recompute="full"),
    LayoutSpec(dp_shard=32, zero_stage=1),
    LayoutSpec(dp_replicate=32),
    LayoutSpec(dp_replicate=4, dp_shard=8, zero_stage=3),
    LayoutSpec(dp_shard=4, tp=8, sp=True, zero_stage=3),
    LayoutSpec(dp_shard=8, cp=4, cp_method="ring", zero_stage=3),
    LayoutSpec(dp_shard=8, cp=4, cp_method="all_gather", zero_stage=3),
    LayoutSpec(dp_shard=8, pp=4, zero_stage=1),
    LayoutSpec(dp_shard=8, pp=4, vpp=2, schedule="interleaved_1f1b", zero_stage=3),
    LayoutSpec(dp_shard=32, ep=8, zero_stage=3),
    LayoutSpec(dp_shard=8, tp=4, sp=True, ep=8, zero_stage=1),
)
OTHER_PARTS = {
    "sp": (True, False),
    "cp_method": ("ring", "all_gather", "all_to_all", "hierarchical"),
    "vpp": (1, 2, 4),
    "schedule": ("1f1b", "gpipe", "interleaved_1f1b", "looped_bfs", "zbv_zero_bubble"),
    "stage_layers": ((8, 8, 8, 8), (7, 9, 9, 7)),
    "etp": (2,),
    "zero_stage": (0, 1, 2, 3),
    "micro_batch_size": (1, 2, 4),
    "recompute": ("none", "selective", "operations", "alternate", "block", "full"),
    "recompute_layers": (1, 2),
    "offload": (None, "cpu", "activations"),
}


def _means_something(layout, part):
    """Whether the layout is another one with another value of ``part``."""
    beside = {
        "sp": layout.tp > 1,
        "cp_method": layout.cp > 1,
        "schedule": layout.pp > 1,
        "etp": layout.ep > 1,
        "recompute_layers": layout.recompute in ("alternate", "block", "full"),
    }
    return beside.get(part, True)


def _is_legal(engine, model, layout):
    facts = facts_of(model=read_model(model), training=TRAINING, topology=CLUSTER, layout=layout)
    return not violations(facts, profile_of(engine))


def _files(engine, model, layout, training=TRAINING):
    """What is written, without the name of the layout; None where it is refused."""
    given = replace(handover(engine, model, layout), training=training)
    try:
        files = EXPORTS[engine](given)
    except InputError:
        return None
    return {name: text.replace(layout.label, "") for name, text in files.items()}


@pytest.mark.parametrize(("engine", "model"), CASES)
def test_every_part_of_a_legal_layout_is_written_or_refused(engine, model):
    compared = 0
    for layout in filter(partial(_is_legal, engine, model), BASES):
        if (files := _files(engine, model, layout)) is None:
            continue
        for part, values in OTHER_PARTS.items():
            for value in values:
                other = replace(layout, **{part: value})
                is_other = other != layout and _means_something(layout, part)
                if not is_other or not _is_legal(engine, model, other):
                    continue
                compared += 1
                assert _files(engine, model, other) != files, f"{layout.label}: {part}={value}"
    assert compared > 10


RUNTIMES = {
    "compile": False,
    "attention": "unfused",
    "loss": "chunked",
    "fp8_parameters": True,
    "attention_dropout": 0.25,
    "hidden_dropout": 0.25,
    "overlap_gradients": True,
    "overlap_parameters": True,
    "overlap_tensor_parallel": True,
    "fused_gradient_accumulation": False,
    "bucket_bytes": 2**20,
    "optimizer_in_backward": True,
    "paged_optimizer": True,
    "expert_capacity_factor": 1.5,
    "router_bias_rate": 0.5,
}
THEIR_OWN = {
    "megatron": ("compile", "fp8_parameters"),
    "megatron_bridge": ("compile",),
    "torchtitan": ("overlap_gradients", "overlap_parameters"),
}
"""What an engine does, or what means nothing beside bf16, without being told."""


@pytest.mark.parametrize("engine", EXPORTS)
def test_every_part_of_a_training_is_written_or_refused(engine):
    layout = LayoutSpec(dp_shard=32, zero_stage=3)
    files = _files(engine, "llama-3.1-8b", layout)
    mixed = PRECISIONS["bf16_mixed"]
    other = [
        *({"precision": each} for name, each in PRECISIONS.items() if name != "bf16_mixed"),
        *({"precision": replace(mixed, **{key: 2})} for key in ("gradient_bytes", "moment_bytes")),
        *({"optimizer": name} for name in ("sgd", "adamw_8bit", "muon")),
        *({"learning_rate": 5e-4}, {"weight_decay": 0.2}),
        *({"max_grad_norm": norm} for norm in (None, 0.5)),
        *({"adapter": AdapterSpec(rank=8, base_bits=bits)} for bits in (None, 4)),
        *(
            {"runtime": RuntimeSpec(**{key: value})}
            for key, value in RUNTIMES.items()
            if key not in THEIR_OWN.get(engine, ())
        ),
    ]
    for change in other:
        changed = replace(TRAINING, **change)
        assert _files(engine, "llama-3.1-8b", layout, changed) != files, change


@pytest.mark.parametrize(
    ("recipe", "written"), [("delayed", "delayed"), ("mxfp8", "mxfp8"), ("rowwise", None)]
)
@pytest.mark.parametrize("engine", ["megatron", "megatron_bridge"])
def test_a_recipe_of_fp8_that_an_engine_has_not_is_no_other_one(engine, recipe, written):
    training = replace(
        TRAINING, precision=PRECISIONS["fp8_mixed"], runtime=RuntimeSpec(fp8_recipe=recipe)
    )
    files = _files(engine, "llama-3.1-8b", LayoutSpec(dp_shard=32, zero_stage=1), training)
    assert (files is None) == (written is None)
    assert written is None or written in "".join(files.values())


@pytest.mark.parametrize("engine", ["megatron", "megatron_bridge", "torchtitan"])
def test_an_allocator_that_is_predicted_is_asked_for(engine):
    training = replace(TRAINING, runtime=RuntimeSpec(allocator="expandable"))
    files = _files(engine, "llama-3.1-8b", LayoutSpec(dp_shard=32, zero_stage=3), training)
    assert "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in "".join(files.values())


def test_what_an_engine_cannot_say_is_refused():
    pipelined = LayoutSpec(pp=4, dp_shard=8, zero_stage=1)
    for engine in ("deepspeed", "accelerate"):
        with pytest.raises(InputError, match="pipeline"):
            EXPORTS[engine](handover(engine, "llama-3.1-8b", pipelined))
    with pytest.raises(InputError, match="registry"):
        EXPORTS["torchtitan"](handover("torchtitan", "qwen3-8b", LayoutSpec(dp_shard=32)))
    with pytest.raises(InputError, match="attention"):
        EXPORTS["megatron"](handover("megatron", "gpt-oss-20b", LayoutSpec(dp_shard=32)))
    assert not can_write(recognise('{"zero_optimization": {}}').write, pipelined, 128)


@pytest.mark.parametrize(
    ("engine", "parts"),
    [
        ("megatron", {"cp": 4, "cp_inner": 2, "cp_method": "hierarchical"}),
        ("torchtitan", {"pp": 4, "schedule": "by_hand"}),
        ("accelerate", {"tp": 8}),
        ("accelerate", {"dp_replicate": 4, "tp": 2}),
    ],
)
def test_what_no_option_says_is_refused_and_not_left_out(engine, parts):
    with pytest.raises(InputError):
        EXPORTS[engine](handover(engine, "llama-3.1-8b", LayoutSpec(**parts)))
