"""Cases of people in the field that reading a topology answers, with the figures they report."""

import pytest

from meshfit.cluster.nvml import visible_handles
from tests.cluster.discover import outputs

PAIRS_ARE_DOMAINS = [[0, 1], [2, 3], [4, 5], [6, 7]]
DROP = 208 / 20
"""Bus bandwidth of an all-reduce over 2 GPUs of a pair and over 3 (NVIDIA/nccl-tests#178)."""
USED_BY_RANK_3 = 3
"""The device of local rank 3 where each process sees all four (NVIDIA-NeMo/RL#2613)."""


def test_g01_bridged_pairs_are_the_only_fast_domains(document):
    paths = outputs.sockets(8)
    pairs = outputs.topo_matrix(
        outputs.gpus(8), lambda i, j: "NV12" if i // 2 == j // 2 else paths(i, j)
    )
    found = document(pairs, accelerator="A100-PCIe")
    groups = [[int(label[3:]) for label in group] for group in found["domains"]["link"]]
    assert groups == PAIRS_ARE_DOMAINS
    link, outside = found["levels"][:2]
    assert link["size"] == 2
    assert link["bandwidth"] / outside["bandwidth"] == pytest.approx(DROP, rel=0.15)


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


def test_g09_a_rank_uses_the_device_at_its_place_in_the_list(monkeypatch):
    class Nvml:
        nvmlDeviceGetCount = staticmethod(lambda: 8)  # noqa: N815
        nvmlDeviceGetHandleByIndex = staticmethod(lambda index: index)  # noqa: N815

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    assert visible_handles(Nvml)[3] == USED_BY_RANK_3
