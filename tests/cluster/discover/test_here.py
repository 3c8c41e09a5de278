import ctypes
from enum import IntEnum
from types import SimpleNamespace

import pynvml
import pytest

from meshfit.cluster.discover import here
from meshfit.cluster.discover.conclude import conclude
from meshfit.cluster.discover.document import discovery_document
from meshfit.cluster.discover.facts import FabricFacts, GpuFacts, HostFacts, Path, pair
from meshfit.cluster.discover.here_amd import amd_facts
from meshfit.cluster.discover.here_nvml import nvml_facts
from meshfit.cluster.discover.here_sysfs import card_rates, with_sysfs
from meshfit.cluster.discover.merge import merge
from tests.cluster.discover.outputs import UUID


class Nvml:
    """Four GPUs of a tray, all links to a switch."""

    NVML_NVLINK_MAX_LINKS = 18
    NVML_NVLINK_DEVICE_TYPE_SWITCH = 2
    NVML_P2P_CAPS_INDEX_READ = 0
    c_nvmlGpuFabricInfo_v3_t = pynvml.c_nvmlGpuFabricInfo_v3_t  # noqa: N815
    c_nvmlGpuFabricInfo_v2_t = pynvml.c_nvmlGpuFabricInfo_v2_t  # noqa: N815
    links = 18
    peer = 0

    class NVMLError(Exception):
        pass

    def __getattr__(self, name):
        def unsupported(*_):
            raise self.NVMLError

        return unsupported

    def nvmlDeviceGetName(self, _):  # noqa: N802
        return "NVIDIA GB200"

    def nvmlDeviceGetMemoryInfo(self, _):  # noqa: N802
        return SimpleNamespace(total=189471 * 2**20, free=180000 * 2**20)

    def nvmlDeviceGetPciInfo(self, handle):  # noqa: N802
        return SimpleNamespace(busId=f"0000000{handle}:01:00.0")

    def nvmlDeviceGetNvLinkState(self, _, link):  # noqa: N802
        if link >= self.links:
            raise self.NVMLError
        return 1

    def nvmlDeviceGetNvLinkVersion(self, _, link):  # noqa: N802
        return 7

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, _, link):  # noqa: N802
        return 2

    def nvmlDeviceGetTopologyCommonAncestor(self, a, b):  # noqa: N802
        return 40 if a // 2 == b // 2 else 50

    def nvmlDeviceGetP2PStatus(self, a, b, index):  # noqa: N802
        return self.peer

    def nvmlDeviceGetMaxPcieLinkGeneration(self, _):  # noqa: N802
        return 5

    def nvmlDeviceGetMaxPcieLinkWidth(self, _):  # noqa: N802
        return 16

    def nvmlDeviceGetMigMode(self, _):  # noqa: N802
        return [0, 0]

    def nvmlDeviceGetGpuFabricInfoV(self, _, pointer):  # noqa: N802
        info = ctypes.cast(pointer, ctypes.POINTER(self.c_nvmlGpuFabricInfo_v3_t)).contents
        info.state, info.status, info.cliqueId = 3, 0, 9
        info.clusterUuid[:] = bytes.fromhex(UUID.replace("-", ""))
        return 0


class NoLinks(Nvml):
    links = 0
    peer = 1

    def nvmlDeviceGetName(self, _):  # noqa: N802
        return "NVIDIA GeForce RTX 4090"

    def nvmlDeviceGetGpuFabricInfoV(self, *_):  # noqa: N802
        raise self.NVMLError


def test_nvml_tells_links_to_a_switch_memory_slot_and_the_fabric():
    host = nvml_facts(Nvml(), [0, 1, 2, 3])
    assert set(host.paths.values()) == {Path(kind="NV", links=18)}
    assert host.has_switch
    [first, *_] = host.gpus
    assert first.bus_id == "0000:01:00.0"
    assert first.fabric == FabricFacts(
        state="Completed", status="Success", cluster_uuid=UUID, clique_id="9"
    )
    assert (first.memory_bytes - first.free_bytes, first.mig) == (9471 * 2**20, False)
    assert first.links_bytes_per_s == (50e9,) * 18


@pytest.fixture
def here_with(monkeypatch, tmp_path):
    """The document of this machine as a driver and an empty sysfs tell it."""

    def read(nvml, count):
        monkeypatch.setattr(here, "_nvidia", lambda: nvml_facts(nvml, list(range(count))))
        return discovery_document(conclude(merge([here.read_here(tmp_path)])))

    return read


def test_a_tray_of_a_rack_shows_four_of_72(here_with):
    found = here_with(Nvml(), 4)
    assert (found["accelerators"], found["accelerator"]) == (4, "GB200")
    assert [(one["name"], one["size"], one["bandwidth"]) for one in found["levels"]] == [
        ("link", 4, 900e9)
    ]
    assert (found["memory"], found["memory_free"]) == (189471 * 2**20, 180000 * 2**20)
    assert any(f"4 of 72 visible: the NVLink domain ({UUID}.9)" in w for w in found["warnings"])


def test_a_pcie_box_without_peer_access_comes_out_as_buses(here_with):
    found = here_with(NoLinks(), 4)
    assert [(one["name"], one["size"], one["kind"]) for one in found["levels"]] == [
        ("numa", 2, "bus"), ("host", 2, "bus"),
    ]  # fmt: skip
    assert found["domains"]["link"] == [["GPU0"], ["GPU1"], ["GPU2"], ["GPU3"]]
    assert any("peer access is off for all pairs (CNS" in warning for warning in found["warnings"])


def make_device(sys, way, numa):
    """A PCI device below ``way`` (folders from the host bridge), and its link by bus id."""
    folder = sys / "devices" / way
    folder.mkdir(parents=True)
    (folder / "numa_node").write_text(f"{numa}\n")
    (folder / "local_cpulist").write_text("0-15\n")
    link = sys / "bus/pci/devices" / folder.name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(folder)
    return folder


def test_sysfs_places_gpus_and_cards(tmp_path):
    make_device(tmp_path, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0", 0)
    card = make_device(
        tmp_path, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0", 0
    )
    make_device(tmp_path, "pci0000:80/0000:80:01.0/0000:81:00.0", 1)
    verbs = tmp_path / "class/infiniband/mlx5_0"
    (verbs / "ports/1").mkdir(parents=True)
    (verbs / "ports/1/rate").write_text("400 Gb/sec (4X NDR)\n")
    (verbs / "device").symlink_to(card)
    for node in range(2):
        folder = tmp_path / f"devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{node * 16}-{node * 16 + 15}\n")
    (tmp_path / "devices/system/node/node2").mkdir()
    (tmp_path / "devices/system/node/node2/cpulist").write_text("\n")
    gpus = tuple(
        GpuFacts(label=f"GPU{i}", bus_id=bus)
        for i, bus in enumerate(("0000:03:00.0", "0000:81:00.0"))
    )
    host = with_sysfs(HostFacts(gpus=gpus), tmp_path)
    assert host.numa_nodes == (0, 1)
    assert host.paths[pair("GPU0", "NIC0")].kind == "PIX"
    assert host.paths[pair("GPU0", "GPU1")].kind == "SYS"
    assert [(nic.name, nic.bytes_per_s, nic.numa) for nic in host.nics] == [("mlx5_0", 50e9, 0)]
    assert [(gpu.numa, gpu.cpus) for gpu in host.gpus] == [((0,), "0-15"), ((1,), "0-15")]


class LinkType(IntEnum):
    AMDSMI_LINK_TYPE_PCIE = 1
    AMDSMI_LINK_TYPE_XGMI = 2


def test_amdsmi_tells_xgmi_memory_and_numa():
    smi = SimpleNamespace(
        AmdSmiException=RuntimeError,
        AmdSmiMemoryType=SimpleNamespace(VRAM=0),
        AmdSmiLinkType=LinkType,
        amdsmi_get_processor_handles=lambda: [0, 1],
        amdsmi_get_gpu_memory_total=lambda handle, kind: 192 * 2**30,
        amdsmi_get_gpu_memory_usage=lambda handle, kind: 2**30,
        amdsmi_get_gpu_device_bdf=lambda handle: f"0000:0{handle}:00.0",
        amdsmi_topo_get_numa_node_number=lambda handle: handle,
        amdsmi_get_gpu_asic_info=lambda handle: {"market_name": "AMD Instinct MI300X"},
        amdsmi_topo_get_link_weight=lambda a, b: 15,
        amdsmi_topo_get_link_type=lambda a, b: {"hops": 1, "type": LinkType.AMDSMI_LINK_TYPE_XGMI},
    )
    host = amd_facts(smi)
    assert host.paths == {("GPU0", "GPU1"): Path(kind="XGMI", links=1)}
    assert [(gpu.name, gpu.numa, gpu.free_bytes) for gpu in host.gpus] == [
        ("AMD Instinct MI300X", (0,), 191 * 2**30), ("AMD Instinct MI300X", (1,), 191 * 2**30),
    ]  # fmt: skip


def test_cards_say_what_they_carry_where_their_driver_knows(tmp_path):
    for name, speed in {"eno1": "1000", "enp65s0": "10000", "lo": "", "eno2": "-1"}.items():
        (tmp_path / "class/net" / name).mkdir(parents=True)
        (tmp_path / "class/net" / name / "speed").write_text(speed)
    (tmp_path / "class/infiniband/mlx5_0/ports/1").mkdir(parents=True)
    (tmp_path / "class/infiniband/mlx5_0/ports/1/rate").write_text("400 Gb/sec (4X NDR)\n")
    assert card_rates(tmp_path) == {"mlx5_0": 50e9, "eno1": 0.125e9, "enp65s0": 1.25e9}
