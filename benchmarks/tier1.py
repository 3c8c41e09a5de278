"""Layouts per second of tier 1 on one core, and its peak memory.

Run it alone on a quiet machine:

    taskset -c 0 python benchmarks/tier1.py [--layouts 500000] [--repeats 5]

Every combination of mesh, micro-batch, recompute, virtual stages and split of data parallelism of
Llama-3.1-405B on 16,384 H100 that fills the world counts as a layout, repeated or cut to the number
asked for. Prints machine, versions, and median and spread of the repeats.
"""

import argparse
import itertools
import os
import platform
import resource
import statistics
import time

import numpy as np

from meshfit.cluster.catalogue import accelerator
from meshfit.cluster.topology import Level, Topology
from meshfit.engines.native.profile import NATIVE
from meshfit.mesh.candidates import COLUMNS, RECOMPUTE, Candidates
from meshfit.predict.estimate import estimate
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec
from meshfit.workload.training import PRECISIONS, TrainingSpec

WORLD_SIZE = 16_384

_LAYER = LayerSpec(
    attention=AttentionSpec(num_attention_heads=128, num_key_value_heads=8, head_dim=128),
    mlp=MlpSpec(intermediate_size=53_248, gated=True),
)
LLAMA_405B = ModelSpec(
    name="llama-3.1-405b",
    model_type="llama",
    hidden_size=16_384,
    vocab_size=128_256,
    layers=(_LAYER,) * 126,
    norm="rms_norm",
    tie_word_embeddings=False,
    max_position_embeddings=131_072,
)
H100 = accelerator("H100-SXM5-80")
CLUSTER = Topology(
    accelerator=H100,
    levels=(
        Level(name="node", size=8, kind="switch", bandwidth_bytes_per_s=450e9, latency_s=3e-6),
        Level(name="pod", size=384, kind="switch", bandwidth_bytes_per_s=50e9, latency_s=14e-6),
        Level(
            name="fabric",
            size=6,
            kind="switch",
            bandwidth_bytes_per_s=50e9,
            latency_s=20e-6,
            oversubscription=7.0,
        ),
    ),
    gpus_per_host=8,
)
TRAINING = TrainingSpec(
    sequence_length=8192, global_batch_size=2048, precision=PRECISIONS["bf16_mixed"]
)


def all_layouts(count: int) -> Candidates:
    """``count`` layouts of the space above."""
    rows = []
    degrees = [2**k for k in range(12)]
    policies = [RECOMPUTE.index(name) for name in ("none", "full")]
    stages = [1, 2, 3, 4, 6, 7, 8, 9, 14, 16, 18, 21, 32]
    for tp, cp, pp, vpp in itertools.product([1, 2, 4, 8], [1, 2, 4, 8, 16], stages, [1, 2, 3]):
        if pp * vpp > len(LLAMA_405B.layers) or (vpp > 1 and pp == 1):
            continue
        for shard, replicate, batch, recompute, zero in itertools.product(
            degrees, degrees, [1, 2, 4, 8], policies, [1, 2, 3]
        ):
            if replicate * shard * tp * cp * pp <= WORLD_SIZE:
                schedule = 2 if vpp > 1 else 1
                rows.append((replicate, shard, tp, cp, pp, vpp, schedule, batch, recompute, zero))
    table = np.resize(np.array(rows, dtype=np.int64), (count, 10))
    names = ("dp_replicate", "dp_shard", "tp", "cp", "pp", "vpp", "schedule", "micro_batch_size",
             "recompute", "zero_stage")  # fmt: skip
    columns = {name: np.zeros(count, dtype=np.int64) for name in COLUMNS}
    columns |= {name: table[:, index].copy() for index, name in enumerate(names)}
    columns |= {name: np.ones(count, dtype=np.int64) for name in ("ep", "etp", "recompute_layers")}
    columns["sp"] = (columns["tp"] > 1).astype(np.int64)
    return Candidates(**columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layouts", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    candidates = all_layouts(arguments.layouts)
    seconds = []
    for _ in range(arguments.repeats):
        started = time.perf_counter()
        estimate(LLAMA_405B, TRAINING, CLUSTER, candidates, NATIVE)
        seconds.append(time.perf_counter() - started)
    rates = sorted(len(candidates) / s for s in seconds)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"machine   {platform.processor() or platform.machine()}, {os.cpu_count()} cores")
    print(f"versions  python {platform.python_version()}, numpy {np.__version__}")
    print(f"layouts   {len(candidates)}, pipelines {_pipelines(candidates)}")
    print(
        f"rate      median {statistics.median(rates):,.0f} layouts/s "
        f"(lowest {rates[0]:,.0f}, highest {rates[-1]:,.0f}; {arguments.repeats} repeats)"
    )
    print(f"memory    {peak_mib:,.0f} MiB peak resident")


def _pipelines(candidates: Candidates) -> int:
    keys = np.stack([candidates.pp, candidates.vpp, candidates.schedule, candidates.stage_split])
    return int(np.unique(keys, axis=1).shape[1])


if __name__ == "__main__":
    main()
