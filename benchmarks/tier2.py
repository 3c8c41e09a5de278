"""Layouts per second of tier 2 on one core: 16 stages, 64 micro-batches.

Run it alone on a quiet machine:

    taskset -c 0 python benchmarks/tier2.py [--layouts 200] [--repeats 5]

Layouts of Llama-3.1-405B on 16,384 H100 with 16 pipeline ranks, so spread over data and tensor
parallelism that every one has 64 micro-batches; each schedule by itself, its program made anew in
every repeat. Prints machine, versions, and median and spread of the repeats.
"""

import argparse
import itertools
import os
import platform
import statistics
import time
from dataclasses import replace

import numpy as np
from tier1 import CLUSTER, LLAMA_405B, TRAINING

from meshfit.engines.native.profile import NATIVE
from meshfit.mesh.candidates import RECOMPUTE, SCHEDULES, Candidates
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.estimate import estimate
from meshfit.predict.estimates import Estimates
from meshfit.predict.shape.schedules.program import program
from meshfit.predict.shape.schedules.waves import waves_of
from meshfit.predict.simulate.tier2 import simulated

STAGES, MICRO_BATCHES = 16, 64


def layouts(schedule: str, count: int) -> Candidates:
    """``count`` layouts that run ``schedule`` with 16 ranks and 64 micro-batches."""
    vpp = 1 if schedule in ("gpipe", "1f1b") else 2
    found = []
    for tp, cp, replicate, batch, recompute, zero in itertools.product(
        (1, 2, 4, 8), (1, 2, 4), (1, 2, 4, 8), (1, 2, 4), RECOMPUTE, (1, 2, 3)
    ):
        shard = TRAINING.global_batch_size // (MICRO_BATCHES * batch * replicate)
        if shard > 1:
            layout = LayoutSpec(
                tp=tp,
                sp=tp > 1,
                cp=cp,
                pp=STAGES,
                vpp=vpp,
                schedule=schedule,
                dp_replicate=replicate,
                dp_shard=shard,
                zero_stage=zero,
                micro_batch_size=batch,
                recompute=recompute,
            )
            found.append(layout)
    return Candidates.from_layouts(list(itertools.islice(itertools.cycle(found), count)))


def seconds(estimates: Estimates) -> float:
    """Wall time of simulating all of them, program included."""
    for cached in (program, waves_of):
        cached.cache_clear()
    started = time.perf_counter()
    simulated(estimates, np.arange(len(estimates)))
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layouts", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    print(f"machine   {platform.processor() or platform.machine()}, {os.cpu_count()} cores")
    print(f"versions  python {platform.python_version()}, numpy {np.__version__}")
    profile = replace(NATIVE, schedules=SCHEDULES)
    for schedule in SCHEDULES:
        candidates = layouts(schedule, arguments.layouts)
        estimates = estimate(LLAMA_405B, TRAINING, CLUSTER, candidates, profile)
        rates = sorted(len(candidates) / seconds(estimates) for _ in range(arguments.repeats))
        print(
            f"{schedule:24s} median {statistics.median(rates):8,.0f} layouts/s "
            f"(lowest {rates[0]:,.0f}, highest {rates[-1]:,.0f}; {arguments.repeats} repeats)"
        )


if __name__ == "__main__":
    main()
