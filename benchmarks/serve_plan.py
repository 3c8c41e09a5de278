"""Seconds of a serving plan for 32 accelerators: every layout and pair of pools.

    python benchmarks/serve_plan.py [--repeats 3]

A dense model of 70B under one engine and DeepSeek-V3 under two, on 4 hosts of 8. Prints machine and
versions, and per job how many layouts there were, and median and spread of wall and process seconds. Each
plan has to take less than 5 s; ends with 1 where one did not.
"""

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from meshfit.serve.job.read import read_serving_job
from meshfit.serve.job.spec import ServingJob
from meshfit.serve.plan.planning import make_serving_plan

MOST_S = 5.0
JOB = """
schema_version: 1
model: {model}
workload:
  kind: serving
  traffic: {{rate: 8/s, prompt: {{median: 900, p99: 8000}}, output: {{median: 200, p99: 1000}}}}
  targets: {{ttft: {{p95: 1500 ms}}, itl: {{p95: 40 ms}}}}
cluster: {cluster}
engine: {engines}
"""
JOBS = (
    ("llama-3.1-70b", "4x8 H100-SXM", "[vllm]"),
    ("deepseek-v3", "4x8 H200-SXM", "[vllm, sglang]"),
)


def job(model: str, cluster: str, engines: str) -> ServingJob:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        path.write_text(JOB.format(model=model, cluster=cluster, engines=engines))
        return read_serving_job(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print(
        f"machine   {platform.processor() or platform.machine()}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f}"
    )
    print(f"versions  python {platform.python_version()}, numpy {np.__version__}")
    slowest_s = 0.0
    for asked in JOBS:
        read, walls, processes = job(*asked), [], []
        for _ in range(arguments.repeats):
            wall_s, process_s = time.perf_counter(), time.process_time()
            plan = make_serving_plan(read)
            walls.append(time.perf_counter() - wall_s)
            processes.append(time.process_time() - process_s)
        slowest_s = max(slowest_s, statistics.median(walls))
        pairs = len(plan.rows) - len(plan.of_one_pool)
        print(
            f"{asked[0]} on {asked[1]} under {asked[2]}: {len(plan.of_one_pool)} layouts and {pairs} "
            f"pairs of pools in {statistics.median(walls):.2f} s ({min(walls):.2f} to {max(walls):.2f}; "
            f"{statistics.median(processes):.2f} s of the process)"
        )
    sys.exit(int(slowest_s >= MOST_S))


if __name__ == "__main__":
    main()
