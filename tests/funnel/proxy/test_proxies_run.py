"""A proxy really run: one layout of four nodes, cut to the one that this machine is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import marked_processes
from tests.submit.cluster_job import write_cluster_job

pytestmark = [pytest.mark.dist, pytest.mark.heavy]

CATALOGUE = """
schema_version: 1
accelerators:
  cpu:
    device_type: cpu
    memory: 3 GiB
    memory_bandwidth: 10 GB/s
    peak_flops_per_s: {fp32: 5.0e+10, bf16: 5.0e+10}
"""

FOUR_NODES = """
schema_version: 1
accelerator: cpu
gpus_per_host: 2
levels:
  - {name: node, size: 2, kind: bus, bandwidth: 1 GB/s}
  - {name: network, size: 4, kind: switch, bandwidth: 1 GB/s}
"""

RUN = """
run: {shortlist: 1, repeats: 1, steps: 6, warmup: 1}
search: {dp_shard: [8]}
"""


def test_a_step_of_four_nodes_is_composed_from_a_run_on_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_cluster_job(tmp_path, RUN, cluster=FOUR_NODES)
    job.write_text(job.read_text().replace("global_batch: 4", "global_batch: 16"))
    (tmp_path / "catalogue.yaml").write_text(CATALOGUE)
    monkeypatch.setenv("MESHFIT_CATALOGUE", str(tmp_path / "catalogue.yaml"))
    command = [sys.executable, "-m", "meshfit.cli.main", "fit", str(job), "--proxy", "1", "--json"]
    with marked_processes(monkeypatch, tmp_path):
        done = subprocess.run(
            [*command, "--out", str(tmp_path / "out")],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    [one] = json.loads(done.stdout)["candidates"]
    assert one["layout"]["dp_shard"] == 8
    assert one["proxy"]["layout"]["dp_shard"] == 2
    assert one["parity"]
    assert one["step_time"]["middle"] == pytest.approx(
        one["predicted"]["interval"]["step_time"]["middle"] * one["factor"]
    )
