"""What is written for an engine says the same layout when it is read back."""

import subprocess
from dataclasses import replace

import numpy as np
import pytest

from meshfit.cluster.shorthand import read_shorthand
from meshfit.engines import engine_profile
from meshfit.engines.exports import EXPORTS, PROFILE_OF
from meshfit.engines.handover import Handover
from meshfit.engines.layout_options import can_write
from meshfit.engines.recognise import recognise
from meshfit.errors import InputError
from meshfit.job.read import layout_of_keys
from meshfit.mesh.generate import generate
from meshfit.mesh.search import SearchSpec
from meshfit.mesh.spec import LayoutSpec
from meshfit.workload.counts import total_parameters
from meshfit.workload.models import read_model
from meshfit.workload.training import PRECISIONS, TrainingSpec

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
def test_scripts_are_scripts(engine, names, tmp_path):
    layout = LayoutSpec(dp_shard=32, zero_stage=3)
    files = EXPORTS[engine](handover(engine, "llama-3.1-8b", layout))
    for name in names:
        (tmp_path / name).write_text(files[name])
        subprocess.run(["bash", "-n", str(tmp_path / name)], check=True)


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
