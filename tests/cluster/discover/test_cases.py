"""Cases of people in the field that reading a topology answers (kind g of the collected ones)."""

import json
from pathlib import Path

import pytest

from meshfit.cluster.nvml import visible_handles
from tests.cluster.discover import outputs

CASES = Path(__file__).parents[4] / "shared/cases/cases.jsonl"


@pytest.fixture(scope="module")
def right():
    if not CASES.is_file():
        pytest.skip("no cases beside the project")
    cases = map(json.loads, CASES.read_text().splitlines())
    return {case["id"]: case["right"] for case in cases}


def test_g01_bridged_pairs_are_the_only_fast_domains(document, right):
    paths = outputs.sockets(8)
    pairs = outputs.topo_matrix(
        outputs.gpus(8), lambda i, j: "NV12" if i // 2 == j // 2 else paths(i, j)
    )
    found = document(pairs, accelerator="A100-PCIe")
    groups = [[int(label[3:]) for label in group] for group in found["domains"]["link"]]
    assert groups == right["g01"]["domains"]
    link, outside = found["levels"][:2]
    assert link["size"] == 2
    assert link["bandwidth"] / outside["bandwidth"] == pytest.approx(right["g01"]["drop"], rel=0.15)


def test_g07_a_card_under_another_root_is_advised_against(document):
    text = outputs.topo_matrix(
        [*outputs.gpus(1), "NIC0"], lambda i, j: "NODE", trailing=["0-15\t0\t\tN/A"],
        legend={"NIC0": "mlx5_0"},
    )  # fmt: skip
    found = document(text)
    assert found["nearest_nics"]["GPU0"] == {"path": "NODE", "nics": ["mlx5_0"]}
    assert any(
        "GPU0: the nearest network card shares no PCIe root (NODE" in w for w in found["warnings"]
    )


def test_g09_a_rank_uses_the_device_at_its_place_in_the_list(right, monkeypatch):
    class Nvml:
        nvmlDeviceGetCount = staticmethod(lambda: 8)  # noqa: N815
        nvmlDeviceGetHandleByIndex = staticmethod(lambda index: index)  # noqa: N815

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    assert visible_handles(Nvml)[3] == right["g09"]["gpu"]
