import sys
from types import SimpleNamespace

import pytest

from meshfit.cluster.nvml import visible_gpus


class FakeNvml:
    """Three devices, the first without NVLink."""

    NVML_NVLINK_MAX_LINKS = 18

    class NVMLError(Exception):
        pass

    def __init__(self):
        self.shut_down = False

    def nvmlInit(self):  # noqa: N802
        pass

    def nvmlShutdown(self):  # noqa: N802
        self.shut_down = True

    def nvmlDeviceGetCount(self):  # noqa: N802
        return 3

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        return {"GPU-two": 2}[uuid]

    def nvmlDeviceGetName(self, handle):  # noqa: N802
        return f"gpu {handle}"

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return SimpleNamespace(total=100, free=90)

    def nvmlDeviceGetNvLinkState(self, handle, link):  # noqa: N802
        if handle == 0:
            raise self.NVMLError
        return int(link == 3)


@pytest.fixture
def nvml(monkeypatch):
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


def test_each_gpu_has_name_memory_and_link_state(nvml):
    gpus = visible_gpus()
    assert [gpu.name for gpu in gpus] == ["gpu 0", "gpu 1", "gpu 2"]
    assert [gpu.nvlink for gpu in gpus] == [False, True, True]
    assert (gpus[0].memory_bytes, gpus[0].free_bytes) == (100, 90)
    assert nvml.shut_down


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("1", ["gpu 1"]),
        ("2, 0", ["gpu 2", "gpu 0"]),
        ("GPU-two", ["gpu 2"]),
        ("", []),
        ("-1", []),
        ("1,9,0", ["gpu 1"]),
    ],
)
@pytest.mark.usefixtures("nvml")
def test_only_visible_devices_are_seen_in_their_order(monkeypatch, visible, names):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.name for gpu in visible_gpus()] == names


def test_without_a_driver_there_is_no_gpu(monkeypatch, nvml):
    def fail():
        raise nvml.NVMLError

    monkeypatch.setattr(nvml, "nvmlInit", fail)
    assert visible_gpus() == ()
