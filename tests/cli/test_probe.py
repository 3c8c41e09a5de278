"""The command on CPU ranks over gloo, and what plan makes of its file."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshfit.cli.main import app
from meshfit.cluster.files import read_topology
from meshfit.errors import InputError
from meshfit.funnel.space.curves import curves_of_logs, is_of, measured_curves
from meshfit.record.files import read_document, write_json_atomically
from meshfit.record.probe import PROBED_COLLECTIVES, LinkRate, ProbeRecord
from tests.record.test_nccl_log import HEAD, TABLE, log, ranks


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    """Two ranks that share what cores there are: the document that was printed, and its file."""
    folder = tmp_path_factory.mktemp("probe")
    done = subprocess.run(
        [
            sys.executable, "-m", "meshfit.cli.main", "probe", "--json", "--ranks", "2",
            "--budget", "2 s", "--largest", "64 KiB", "--storage", str(folder),
            "--out", str(folder / "curves.json"),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout), folder / "curves.json"


@pytest.mark.dist
def test_every_collective_is_measured_over_every_shape(probed):
    document, path = probed
    assert {curve["collective"] for curve in document["curves"]} == set(PROBED_COLLECTIVES)
    for curve in document["curves"]:
        assert all(point["time"] > 0 for point in curve["points"])
        assert curve["points"][0]["size"] == 1024
    assert document["storage_write"] > 0
    assert document["absent"]["kernels"] == "CUDA only"
    assert read_document(ProbeRecord, path).measured_at == document["measured_at"]


@pytest.mark.dist
def test_bandwidths_are_those_of_nccl_tests(probed):
    document, _ = probed
    for curve in document["curves"]:
        factor = 0.5 if curve["collective"] in ("all_gather", "reduce_scatter", "all_to_all") else 1
        for point in curve["points"]:
            assert point["algorithm_bandwidth"] == pytest.approx(point["size"] / point["time"])
            assert point["bus_bandwidth"] == pytest.approx(factor * point["algorithm_bandwidth"])


@pytest.fixture
def eight_h100(tmp_path):
    path = log(tmp_path, HEAD.format(name="all_reduce") + ranks(["n1"] * 8) + TABLE)
    topology = read_topology("2x8 H100-SXM", Path())
    return curves_of_logs([path], topology, "2026-01-01T00:00:00+00:00"), topology


def test_logs_are_counted_on_the_levels_of_the_cluster(eight_h100):
    record, topology = eight_h100
    assert record.curves[0].members == (8, 1)
    assert is_of(record, topology)
    assert not is_of(record, read_topology("4x8 H100-SXM", Path()))
    assert not is_of(record, read_topology("2x8 H200-SXM", Path()))


def test_a_log_of_more_ranks_than_the_cluster_has_is_refused(tmp_path):
    path = log(tmp_path, HEAD.format(name="all_reduce") + ranks(["n1"] * 8) + TABLE)
    with pytest.raises(InputError, match="8 ranks, 8 a host, but the cluster has 4"):
        curves_of_logs([path], read_topology("4 H100-SXM", Path()), "2026-01-01")


def test_nothing_is_ranked_on_a_broken_fabric(tmp_path, eight_h100):
    record, topology = eight_h100
    slow = LinkRate(first_rank=0, second_rank=1, level=topology.levels[0].name, bytes_per_s=20e9)
    path = tmp_path / "curves.json"
    write_json_atomically(path, record)
    assert measured_curves(path, topology) is not None
    write_json_atomically(path, replace(record, links=(slow,)))
    with pytest.raises(InputError, match=r"nothing can be ranked on this fabric.*NVLink"):
        measured_curves(path, topology)


JOB = """\
schema_version: 1
model: llama-3.1-8b
workload: {kind: training, sequence_length: 4096, global_batch: 64 sequences, precision: bf16_mixed}
cluster: 2x8 H100-SXM
search: {micro_batch_size: 1, recompute: none, pp: 1, cp: 1}
calibration: none
curves: curves.json
"""


def test_plan_rests_on_the_curves_of_its_cluster_and_says_so(tmp_path, eight_h100):
    record, _ = eight_h100
    write_json_atomically(tmp_path / "curves.json", record)
    (tmp_path / "job.yaml").write_text(JOB)
    done = CliRunner().invoke(app, ["plan", str(tmp_path / "job.yaml"), "--json"])
    document = json.loads(done.stdout)
    assert any("collectives as measured here on 2026-01-01" in note for note in document["notes"])
    (tmp_path / "job.yaml").write_text(JOB.replace("curves.json", "none"))
    plain = json.loads(
        CliRunner().invoke(app, ["plan", str(tmp_path / "job.yaml"), "--json"]).stdout
    )
    assert not any("measured here" in note for note in plain["notes"])
