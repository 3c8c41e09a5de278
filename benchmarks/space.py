"""Seconds and memory for the whole legal space of Llama-3.1-405B on 16,384 GPUs, on one core.

Run it alone on a quiet machine:

    taskset -c 0 python benchmarks/space.py [--engine megatron] [--repeats 5]

Generates every legal layout (meshes, micro-batch 1, 2, 4 and 8, recomputation, virtual stages,
ZeRO stages, split of data parallelism into replicas and shards, even and uneven stages) and
estimates memory and step time of each, then simulates the best 200. Prints machine, versions, and
median and spread of the repeats; CPU time beside wall time shows whether the machine was quiet.
"""

import argparse
import os
import platform
import resource
import statistics
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
from tier1 import CLUSTER, LLAMA_405B, TRAINING

from meshfit.engines import engine_profile
from meshfit.funnel.space.estimating import estimating_profile, modelled
from meshfit.mesh.generate import generate
from meshfit.mesh.search import SearchSpec
from meshfit.predict.estimate import estimate
from meshfit.predict.simulate.tier2 import simulated

NODE, POD, FABRIC = CLUSTER.levels
CLUSTER_16K = replace(CLUSTER, levels=(NODE, replace(POD, size=256), replace(FABRIC, size=8)))
TIERS = ("rules", "estimate", "simulate")


def timed(engine: str) -> tuple[dict[str, tuple[float, float]], int, int]:
    """(wall, CPU) seconds by tier; layouts, and those with uneven stages."""
    profile = engine_profile(engine)
    search = SearchSpec(micro_batch_size=(1, 2, 4, 8))
    clocks = [(time.perf_counter(), time.process_time())]

    def tick() -> None:
        clocks.append((time.perf_counter(), time.process_time()))

    generated = generate(LLAMA_405B, TRAINING, CLUSTER_16K, profile, search).candidates
    candidates = generated.take(modelled(generated, LLAMA_405B.num_hidden_layers))
    tick()
    estimates = estimate(LLAMA_405B, TRAINING, CLUSTER_16K, candidates, estimating_profile(profile))
    tick()
    simulated(estimates, np.argsort(-estimates.tokens_per_s)[:200])
    tick()
    taken = [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(clocks)]
    uneven = int(np.count_nonzero(candidates.stage_split))
    return dict(zip(TIERS, taken, strict=True)), len(candidates), uneven


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", default="megatron")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    runs = [timed(arguments.engine) for _ in range(arguments.repeats)]
    _, count, uneven = runs[0]
    print(f"machine   {platform.processor() or platform.machine()}, {os.cpu_count()} cores")
    print(f"versions  python {platform.python_version()}, numpy {np.__version__}")
    print(f"layouts   {count:,}, of them {uneven:,} with given stages; {arguments.engine}")
    for name, tiers in (("rules and estimate", TIERS[:2]), ("simulate 200", TIERS[2:])):
        walls, cpus = (
            sorted(sum(taken[tier][clock] for tier in tiers) for taken, _, _ in runs)
            for clock in (0, 1)
        )
        print(
            f"{name:18s} median {statistics.median(walls):.2f} s wall, "
            f"{statistics.median(cpus):.2f} s CPU (CPU {cpus[0]:.2f}-{cpus[-1]:.2f}; "
            f"{arguments.repeats} repeats)"
        )
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"memory    {peak_mib:,.0f} MiB peak resident")


if __name__ == "__main__":
    main()
