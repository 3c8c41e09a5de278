"""A small job on two nodes of one CPU rank each."""

from pathlib import Path

from tests.funnel.small_job import write_job

CATALOGUE = """
schema_version: 1
accelerators:
  cpu-core:
    device_type: cpu
    memory: 3 GiB
    memory_bandwidth: 10 GB/s
    peak_flops_per_s: {fp32: 5.0e+10, bf16: 5.0e+10}
"""

CLUSTER = """
schema_version: 1
accelerator: cpu-core
gpus_per_host: 1
levels:
  - {name: node, size: 1, kind: bus, bandwidth: 1 GB/s}
  - {name: network, size: 2, kind: switch, bandwidth: 1 GB/s}
"""


def write_cluster_job(folder: Path, more: str = "", *, cluster: str = CLUSTER) -> Path:
    """The job file in ``folder``; the catalogue must be the person's own."""
    job = write_job(folder, more)
    lines = job.read_text().splitlines(keepends=True)
    job.write_text(
        "".join("cluster: cluster.yaml\n" if ln.startswith("cluster:") else ln for ln in lines)
    )
    (folder / "cluster.yaml").write_text(cluster)
    return job
