"""What is computed once for layouts that are alike is what each of them gets alone."""

import numpy as np
import pytest

from meshfit.cluster.catalogue import accelerator
from meshfit.cluster.topology import Level, Topology
from meshfit.engines import engine_profile
from meshfit.funnel.space.estimating import modelled
from meshfit.mesh.generate import generate
from meshfit.mesh.search import SearchSpec
from meshfit.predict.estimate import estimate
from meshfit.workload.models import read_model
from meshfit.workload.training import PRECISIONS, TrainingSpec

NODE = Level(name="node", size=8, kind="switch", bandwidth_bytes_per_s=450e9, latency_s=3e-6)
FABRIC = Level(name="fabric", size=4, kind="switch", bandwidth_bytes_per_s=50e9, latency_s=14e-6)
CLUSTER = Topology(accelerator=accelerator("H100-SXM5-80"), levels=(NODE, FABRIC), gpus_per_host=8)
TRAINING = TrainingSpec(
    sequence_length=4096, global_batch_size=64, precision=PRECISIONS["bf16_mixed"]
)
FIELDS = (
    "memory_middle_bytes", "memory_high_bytes", "memory_categories", "worst_rank", "time_terms",
    "step_low_s", "step_high_s", "tokens_per_s",
)  # fmt: skip


@pytest.mark.parametrize(
    ("engine", "model"),
    [
        ("native", "llama-3.1-8b"),
        ("torchtitan", "llama-3.1-8b"),
        ("megatron", "llama-3.1-8b"),
        ("megatron", "qwen3-30b-a3b"),
        ("deepspeed", "llama-3.1-8b"),
    ],
)
def test_a_layout_among_all_gets_what_it_gets_alone(engine, model):
    profile, spec = engine_profile(engine), read_model(model)
    search = SearchSpec(micro_batch_size=(1, 2), vpp=(1, 2), cp=(1, 2), ep=(1, 4))
    legal = generate(spec, TRAINING, CLUSTER, profile, search).candidates
    legal = legal.take(modelled(legal, spec.num_hidden_layers))
    among = estimate(spec, TRAINING, CLUSTER, legal, profile)
    picked = np.random.default_rng(0).choice(len(legal), size=40, replace=False)
    for row in map(int, picked):
        alone = estimate(spec, TRAINING, CLUSTER, legal.take(np.array([row])), profile)
        for name in FIELDS:
            expected = getattr(alone, name)[0]
            assert np.allclose(getattr(among, name)[row], expected, rtol=1e-12), (
                name,
                legal.layout(row).label,
            )


def test_new_times_of_some_rows_leave_the_others():
    spec = read_model("llama-3.1-8b")
    search = SearchSpec(micro_batch_size=(1,), vpp=(1,), cp=(1,))
    legal = generate(spec, TRAINING, CLUSTER, engine_profile("native"), search).candidates
    estimates = estimate(spec, TRAINING, CLUSTER, legal, engine_profile("native"))
    rows = np.array([3, 7])
    twice = estimates.retimed(rows, 2 * estimates.time_terms[rows])
    assert np.allclose(twice.step_middle_s[rows], 2 * estimates.step_middle_s[rows])
    others = np.setdiff1d(np.arange(len(legal)), rows)
    for name in FIELDS:
        assert np.array_equal(getattr(twice, name)[others], getattr(estimates, name)[others])
    assert np.allclose(twice.step_high_s[rows], 2 * estimates.step_high_s[rows])
