"""Predicted and measured latencies of a real server on this machine at three rates, in one table.

    python benchmarks/serve_bench.py [--launch transformers] [--requests 60] [--shares 0.3 0.6 0.8] [--out FILE]

A small Llama of three layers with heads of 64 is served by one replica, uncompiled; its step clock is measured before each
rate, on requests that are alone; Poisson arrivals then come at shares of the saturation rate that this
clock gives. Prints machine, versions, load of the machine, and per rate measured (predicted)
percentiles. Run it on a quiet machine: a clock measured under other load than the benchmark's is wrong.
"""

import argparse
import json
import os
import platform
import tempfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

from vllm_capacity import CONFIG

from meshfit.record.environment import host_environment
from meshfit.serve.bench.launched import LaunchedBenchmark, bench_running, launched
from meshfit.serve.job.read import read_serving_job
from meshfit.serve.job.spec import ServingJob
from meshfit.serve.servers.commands import ServerKind
from meshfit.serve.servers.weights import weights_folder
from meshfit.serve.setting.layout import ServingLayout
from meshfit.units import format_duration

JOB = """
schema_version: 1
model: config.json
workload:
  kind: serving
  traffic: {{rate: 1/s, prompt: {{median: 48, p99: 120}}, output: {{median: 12, p99: 40}}}}
cluster: here
layout: {{replicas: 1}}
serving: {{eager: true}}
run: {{requests: {requests}}}
"""
SHOWN = (("ttft", "p50"), ("ttft", "p95"), ("tpot", "p50"), ("tpot", "p95"), ("e2e", "p95"))


def run(
    job: ServingJob, kind: ServerKind, folder: Path, shares: list[float]
) -> list[dict[str, Any]]:
    """Starts the server once, and prints one line a rate; the documents of all."""
    layout, documents = ServingLayout(), []
    with launched(job, layout, kind, folder, weights_folder(job, folder)) as servers:
        probe = replace(job, run=replace(job.run, requests=10))
        saturation_per_s = bench_running(
            probe, layout, kind, servers, folder / "probe"
        ).predicted.saturation_per_s
        print(f"server    {servers[0].description}; saturation {saturation_per_s:.3g} requests/s")
        for share in shares:
            traffic = replace(job.traffic, rate_per_s=share * saturation_per_s)
            end = bench_running(
                replace(job, traffic=traffic), layout, kind, servers, folder / f"{share:g}"
            )
            print(_line(traffic.rate_per_s or 0.0, end), flush=True)
            documents.append(end.document)
    return documents


def _line(rate_per_s: float, end: LaunchedBenchmark) -> str:
    cells = [
        f"{metric} {name} {format_duration(end.measured.latencies[metric][name])} "
        f"({format_duration(end.predicted.latencies[metric][name])})"
        for metric, name in SHOWN
    ]
    load = end.predicted.load or 0.0
    return f"{rate_per_s:.3g}/s ({load:.0%} of saturation by its own clock): " + ", ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launch", choices=get_args(ServerKind), default="transformers")
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.3, 0.6, 0.8])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    print(
        f"machine   {platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    print(f"versions  python {platform.python_version()}, torch {version('torch')}")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "config.json").write_text(json.dumps(CONFIG))
        path = root / "job.yaml"
        path.write_text(JOB.format(requests=arguments.requests))
        documents = run(read_serving_job(path), arguments.launch, root, arguments.shares)
    if arguments.out is not None:
        kept = {"benchmarks": documents, "environment": host_environment()}
        arguments.out.write_text(json.dumps(kept, indent=2) + "\n")


if __name__ == "__main__":
    main()
