"""torchtitan builds its trainer from what is written for it: model, mesh, FSDP2, stages and experts."""

import os
import subprocess
from pathlib import Path

import pytest

from meshfit.cluster.shorthand import read_shorthand
from meshfit.engines import engine_profile
from meshfit.engines.exports import EXPORTS
from meshfit.engines.handover import Handover
from meshfit.mesh.spec import LayoutSpec
from meshfit.workload.models import read_model
from meshfit.workload.training import PRECISIONS, TrainingSpec

pytestmark = pytest.mark.engines

BUILDS = Path(__file__).with_name("torchtitan_builds.py")
RANKS = 8
SMALL = {"llama-3.1-8b": "llama3_debugmodel", "deepseek-v3": "deepseek_v3_debugmodel"}
"""Model -> the function of the registry with a small model of its kind, which the CPU builds in seconds."""


def built(layout, model, folder, *, sequence_length=256):
    """What torchtitan says of the exported function, on a small model of that kind."""
    training = TrainingSpec(
        sequence_length=sequence_length, global_batch_size=16, precision=PRECISIONS["bf16_mixed"]
    )
    given = Handover(
        name="try",
        layout=layout,
        model=read_model(model),
        training=training,
        topology=read_shorthand("8 H100-SXM"),
        profile=engine_profile("torchtitan"),
        prediction=None,
        steps=1,
    )
    text = EXPORTS["torchtitan"](given)["titan_try.py"]
    large = {"llama-3.1-8b": "llama3_8b", "deepseek-v3": "deepseek_v3_671b"}[model]
    assert large in text
    (folder / "titan_try.py").write_text(text.replace(large, SMALL[model]))
    world = {"WORLD_SIZE": str(RANKS), "NGPU": str(RANKS), "RANK": "0", "LOCAL_RANK": "0"}
    words = ["--module", "titan_try", "--config", "layout", "--comm.mode=fake_backend"]
    done = subprocess.run(
        [os.environ["MESHFIT_ENGINE_PYTHON"], "-W", "ignore", str(BUILDS), *words],
        cwd=folder,
        env=os.environ | world | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        ("llama-3.1-8b", LayoutSpec(tp=2, sp=True, dp_shard=4, zero_stage=3, recompute="full")),
        ("llama-3.1-8b", LayoutSpec(dp_replicate=2, dp_shard=4, zero_stage=2)),
        ("llama-3.1-8b", LayoutSpec(pp=2, cp=2, dp_shard=2, zero_stage=3)),
        ("deepseek-v3", LayoutSpec(dp_shard=8, ep=4, zero_stage=3)),
    ],
    ids=lambda value: value if isinstance(value, str) else value.label,
)
def test_a_layout_is_built(model, layout, tmp_path):
    said = built(layout, model, tmp_path)
    assert "built [" in said, said[-2000:]


def test_what_our_rules_refuse_is_refused(tmp_path):
    """Rule ``sequence_divisible_by_tp``."""
    layout = LayoutSpec(tp=2, sp=True, dp_shard=4, zero_stage=3)
    said = built(layout, "llama-3.1-8b", tmp_path, sequence_length=255)
    assert "built [" not in said
    assert "must be divisible by" in said
