import json

import pytest


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_on_the_cpu_what_only_a_gpu_has_is_absent_with_a_reason(torch):
    from meshfit.measure.environment import run_environment

    found = run_environment(torch.device("cpu"), ranks=4)
    assert json.loads(json.dumps(found)) == found
    assert found["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    for key in ("gpu", "nccl", "allocator", "collectives"):
        assert key not in found
        assert found["absent"][key]
    assert found["ranks_on_host"] == 4


def test_numeric_modes_are_those_in_force(torch):
    from meshfit.measure.environment import deterministic_environment, matmul_environment

    assert matmul_environment()["float32_precision"] == "highest"
    assert deterministic_environment()["algorithms"] is False
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("high")
    try:
        assert deterministic_environment()["algorithms"] is True
        assert matmul_environment()["float32_precision"] == "high"
        assert matmul_environment()["tf32"] is True
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("highest")


def test_the_attention_kernel_is_the_one_pytorch_would_take(torch):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from meshfit.measure import environment

    cpu = torch.device("cpu")
    assert environment.sdpa_kernel(cpu, torch.float32, 64) == "flash_attention"
    with sdpa_kernel([SDPBackend.MATH]):
        assert environment.sdpa_kernel(cpu, torch.float32, 64) == "math"


class Nvml:
    """A driver that knows clocks but, as on some cards, no power limit."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    def __init__(self, processes=()) -> None:
        self.processes = processes

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "570.86"

    def nvmlDeviceGetEnforcedPowerLimit(self, _handle: object) -> int:  # noqa: N802
        raise self.NVMLError("Not Supported")

    def nvmlDeviceGetClockInfo(self, _handle: object, kind: int) -> int:  # noqa: N802
        return {1: 1980, 2: 2619}[kind]

    def nvmlDeviceGetMaxClockInfo(self, _handle: object, _kind: int) -> int:  # noqa: N802
        return 1980

    def nvmlDeviceGetTemperature(self, _handle: object, _kind: int) -> int:  # noqa: N802
        return 41

    def nvmlDeviceGetComputeRunningProcesses(self, _handle: object):  # noqa: N802
        return self.processes


class Process:
    def __init__(self, pid: int, used: int | None) -> None:
        self.pid, self.usedGpuMemory = pid, used


def test_what_the_driver_does_not_tell_of_a_gpu_is_absent_and_the_rest_is_there(torch):
    from meshfit.measure.nvml import read_gpu

    assert read_gpu(Nvml(), "handle") == {
        "driver": "570.86",
        "clock_sm_mhz": 1980,
        "clock_sm_max_mhz": 1980,
        "clock_memory_mhz": 2619,
        "temperature_celsius": 41,
        "absent": {"power_limit_watts": "NVML: Not Supported"},
    }


def test_a_process_memory_is_its_own_or_unknown(torch):
    from meshfit.measure.nvml import process_bytes

    nvml = Nvml([Process(7, 100), Process(8, 200), Process(9, None)])
    assert process_bytes(nvml, "handle", pid=8) == 200
    assert process_bytes(nvml, "handle", pid=9) is None
    assert process_bytes(nvml, "handle", pid=10) is None


@pytest.mark.gpu
def test_on_cuda_the_device_its_libraries_and_its_allocator_are_told(torch):
    from meshfit.measure.environment import run_environment

    found = run_environment(torch.device("cuda", 0), dtype=torch.bfloat16)
    assert found["gpu"]["name"] == torch.cuda.get_device_name(0)
    assert found["gpu"]["driver"]
    assert found["cuda"]
    assert found["allocator"]["backend"] in ("native", "cudaMallocAsync")
