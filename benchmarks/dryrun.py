"""Wall-clock and memory of a dry run of Llama-3.1-405B on 16,384 H100, everything included.

Run it alone on a quiet machine:

    python benchmarks/dryrun.py [--repeats 5] [--layout tp=8,pp=16,dp_shard=128] [--rank 0]

Each repeat starts the command's own process (``python -m meshfit.dryrun.worker``), so importing
PyTorch and transformers counts. Prints machine, versions, median and spread.
"""

import argparse
import os
import platform
import resource
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from meshfit.funnel.check.dry_run import dry_run_document
from meshfit.job.read import read_job

JOB = """
schema_version: 1
model: llama-3.1-405b
workload:
  {kind: training, sequence_length: 8192, global_batch: 2048 sequences, precision: bf16_mixed}
cluster: 2048x8 H100-SXM
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--layout", default="tp=8,pp=16,dp_shard=128,micro_batch_size=1")
    parser.add_argument("--rank", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        path.write_text(JOB)
        job = read_job(path, layout=arguments.layout)
    assert job.layout is not None
    seconds, cpu_seconds = [], []
    for _ in range(arguments.repeats):
        started, used = time.perf_counter(), _cpu_s()
        document = dry_run_document(job, job.layout, rank=arguments.rank)
        seconds.append(time.perf_counter() - started)
        cpu_seconds.append(_cpu_s() - used)
    peak_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    load = os.getloadavg()[0]
    print(
        f"machine   {platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {load:.1f}"
    )
    print(f"versions  python {platform.python_version()}, torch {version('torch')}")
    print(f"layout    {document['label']}, rank {document['rank']} of {document['world_size']}")
    print(f"run       {document['run']}, {document['operations']:,} operations in the step")
    for name, values in (("wall", seconds), ("CPU", cpu_seconds)):
        print(
            f"{name:<9} median {statistics.median(values):.1f} s "
            f"(lowest {min(values):.1f}, highest {max(values):.1f}; {len(values)} repeats)"
        )
    print(f"memory    {peak_mib:,.0f} MiB peak resident")


def _cpu_s() -> float:
    """Processor time of the processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
