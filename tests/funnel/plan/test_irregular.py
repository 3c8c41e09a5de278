"""Irregular boxes from what tools print, over cluster.yaml, to where axes are placed."""

import json

import pytest
from typer.testing import CliRunner

from meshfit.cli.main import app
from tests.cluster.discover import outputs

JOB = """\
schema_version: 1
model: qwen3-0.6b
workload: {kind: training, sequence_length: 2048, global_batch: 64 sequences, precision: bf16_mixed}
cluster: cluster.yaml
search: {micro_batch_size: 1, recompute: none, pp: 1, cp: 1}
calibration: none
curves: none
"""


@pytest.fixture
def box(tmp_path):
    """Writes what tools print and reads it into cluster.yaml; gives the drawing of it."""
    (tmp_path / "job.yaml").write_text(JOB)

    def discover(*texts, accelerator) -> str:
        files = []
        for index, text in enumerate(texts):
            files.append(tmp_path / f"tool{index}.txt")
            files[-1].write_text(text)
        arguments = [*map(str, files), "--accelerator", accelerator]
        done = CliRunner().invoke(
            app, ["topo", *arguments, "--yaml", str(tmp_path / "cluster.yaml")]
        )
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    return discover


@pytest.fixture
def run(tmp_path):
    def command(name, *arguments):
        done = CliRunner().invoke(
            app, [name, str(tmp_path / "job.yaml"), *arguments, "--json"], catch_exceptions=False
        )
        return json.loads(done.stdout)

    return command


def pairs(is_pair, count=8) -> str:
    far = outputs.sockets(count)
    return outputs.topo_matrix(
        outputs.gpus(count), lambda i, j: "NV12" if is_pair(i, j) else far(i, j)
    )


def fastest(plan) -> dict:
    """Of each degree of tensor parallelism the fastest step."""
    steps: dict[int, float] = {}
    for row in plan["candidates"]:
        tp, step = row["layout"].get("tp", 1), row["time"]["step"]
        steps[tp] = min(step, steps.get(tp, step))
    return steps


def test_g01_tensor_parallelism_stays_inside_bridged_pairs(box, run):
    """NVIDIA/nccl-tests#178: of tp, 2 inside a pair ranks before 4 and 8, which cross PCIe."""
    box(pairs(lambda i, j: i // 2 == j // 2), accelerator="A100-PCIe")
    steps = fastest(run("plan", "--all"))
    assert steps[2] < steps[4] < steps[8]
    (found,) = run("plan", "--placements", "--layout", "tp=2,dp_shard=4")["placements"]
    best, worst = found["placements"]
    assert best["levels"] == {"tp": "link", "dp_shard": "host"}
    assert worst["levels"]["tp"] == "host"


def test_pairs_that_are_no_neighbours_are_placed_on_devices_in_their_order(box, run):
    box(pairs(lambda i, j: i + j == 3, count=4), accelerator="A100-PCIe")
    (found,) = run("plan", "--placements", "--layout", "tp=2,dp_shard=2")["placements"]
    assert found["placements"][0]["levels"]["tp"] == "link"
    assert found["hosts"][0]["devices"] == [0, 3, 1, 2]


def test_a_pcie_box_without_peer_access_says_so_and_avoids_tensor_parallelism(box, run):
    matrix = outputs.topo_matrix(
        outputs.gpus(4), outputs.sockets(4, near="PHB"), trailing=outputs.affinities(4)
    )
    said = box(matrix, outputs.p2p(4, "CNS"), accelerator="L40S")
    assert "peer access is off for all pairs (CNS" in said
    assert "each by its specification, how much is free is not known" in said
    steps = fastest(run("plan", "--all"))
    assert steps[1] < steps[2] < steps[4]


def test_a_grace_tray_is_one_domain_of_four_and_shows_free_and_total_memory(box, run):
    tray = outputs.topo_matrix(
        outputs.gpus(4),
        lambda i, j: "NV18",
        trailing=[
            "0-71\t0,3-9,11-17\t\t2", "0-71\t0,3-9,11-17\t\t10",
            "72-143\t1,19-25,27-33\t\t18", "72-143\t1,19-25,27-33\t\t26",
        ],
    )  # fmt: skip
    said = box(tray, outputs.nvidia_q(4), accelerator="GB200")
    assert "4 x GB200 on 1 host, 185 GiB each, 184 GiB free" in said
    assert "4 of 72 visible" in said
    (found,) = run("plan", "--placements", "--layout", "tp=4")["placements"]
    assert found["placements"][0]["levels"] == {"tp": "link"}
