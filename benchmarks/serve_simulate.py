"""How much faster than real time requests are simulated: 8 replicas at 10 requests/s each, one core.

Run it alone on a quiet machine:

    taskset -c 0 python benchmarks/serve_simulate.py [--requests 20000] [--repeats 5] [--beside SRC]

Llama-3.1-8B on one H100 a replica under vLLM's defaults, Poisson arrivals, lognormal lengths (prompts
of median 500, p99 2000; outputs of median 150, p99 500), step times by the predicted clock. Timed are
routing and all steps; drawing requests and tabulating the clock are shown apart. Prints machine,
versions, and median and spread of the repeats, in seconds of the process.

With ``--beside`` the ``src`` folder of another checkout is timed in the same minutes, in turn with this
one, each repeat in a process of its own: so what else the machine does is the same for both.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meshfit.serve.asked.traffic import TrafficSpec
from meshfit.serve.job.clusters import topology_for
from meshfit.serve.job.read import read_serving_job
from meshfit.serve.simulate.arrivals import draw_requests
from meshfit.serve.simulate.deployment import PredictedDeployment, predicted_deployment
from meshfit.serve.simulate.fleet import serve_open_loop
from meshfit.serve.simulate.pools import Pool

JOB = """
schema_version: 1
model: llama-3.1-8b
workload:
  kind: serving
  traffic: {{rate: 80/s, prompt: {{median: 500, p99: 2000}}, output: {{median: 150, p99: 500}}}}
cluster: 8 H100-SXM
engine: vllm
layout: {{replicas: 8}}
run: {{requests: {requests}, routing: {routing}}}
"""
ROUTINGS = ("round_robin", "least_outstanding")


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """Process seconds of one repeat, and the seconds that it simulated."""

    drawing_s: float
    serving_s: float
    simulated_s: float
    runs_per_request: float


def deployment(requests: int, routing: str) -> tuple[PredictedDeployment, TrafficSpec]:
    """The job above, read and predicted."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        path.write_text(JOB.format(requests=requests, routing=routing))
        job = read_serving_job(path)
    assert job.layout is not None
    topology = topology_for(job, job.layout)
    return predicted_deployment(job, job.layout, job.profiles[0], topology), job.traffic


def repeat(predicted: PredictedDeployment, traffic: TrafficSpec) -> Repeat:
    """Draws the requests and serves them once."""
    assert isinstance(predicted.pools, Pool)
    began_s = time.process_time()
    requests = draw_requests(traffic, predicted.draw)
    drawn_s = time.process_time()
    replicas = serve_open_loop(requests, predicted.pools)
    served_s = time.process_time()
    assert all(one.finished_s is not None for one in requests)
    return Repeat(
        drawing_s=drawn_s - began_s,
        serving_s=served_s - drawn_s,
        simulated_s=requests[-1].arrival_s,
        runs_per_request=sum(len(one.entries) for one in replicas) / len(requests),
    )


def timed(requests: int, repeats: int, routing: str) -> tuple[Repeat, list[float]]:
    """A first repeat, which makes the tables, and of the others how often faster than real time."""
    predicted, traffic = deployment(requests, routing)
    first = repeat(predicted, traffic)
    every = [repeat(predicted, traffic) for _ in range(repeats)]
    return first, sorted(one.simulated_s / one.serving_s for one in every)


def beside(source: Path, arguments: argparse.Namespace) -> None:
    """This checkout and another one in turn."""
    here = Path(__file__).parent.parent / "src"
    for routing in ROUTINGS:
        speeds: dict[Path, list[float]] = {here: [], source.resolve(): []}
        for _ in range(arguments.repeats):
            for path, found in speeds.items():
                found.append(_median_of(path, arguments.requests, routing))
        for name, found in zip(("here", "beside"), speeds.values(), strict=True):
            found.sort()
            print(
                f"{routing:18s} {name:7s} {statistics.median(found):,.0f} times real time (lowest "
                f"{found[0]:,.0f}, highest {found[-1]:,.0f}; {len(found)} processes)"
            )


def _median_of(source: Path, requests: int, routing: str) -> float:
    """Median speed of five repeats in a process that imports ``source``."""
    code = (
        "import statistics, sys; sys.path.insert(0, sys.argv[1]); import serve_simulate as s; "
        "print(statistics.median(s.timed(int(sys.argv[2]), 5, sys.argv[3])[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(requests), routing],
        env=os.environ | {"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--beside", type=Path, metavar="SRC")
    arguments = parser.parse_args()
    print(f"machine   {platform.processor() or platform.machine()}, {os.cpu_count()} cores")
    print(f"versions  python {platform.python_version()}, numpy {np.__version__}")
    if arguments.beside is not None:
        beside(arguments.beside, arguments)
        return
    for routing in ROUTINGS:
        first, speeds = timed(arguments.requests, arguments.repeats, routing)
        print(
            f"{routing:18s} {statistics.median(speeds):,.0f} times real time (lowest {speeds[0]:,.0f}, "
            f"highest {speeds[-1]:,.0f}; {arguments.repeats} repeats), {first.drawing_s:.2f} s to draw "
            f"{arguments.requests:,} requests, {first.runs_per_request:.1f} runs of steps a request, "
            f"first repeat with tables {first.simulated_s / first.serving_s:,.0f} times"
        )


if __name__ == "__main__":
    main()
