import os
from collections import namedtuple
from dataclasses import replace

import pytest

from meshfit.cluster import here
from meshfit.cluster.discover.formats import readings_of
from meshfit.cluster.discover.text import source_of
from meshfit.cluster.files import read_topology
from meshfit.cluster.here import PROCESS_BYTES, available_memory, require_memory, this_machine
from meshfit.cluster.nvml import Gpu
from meshfit.errors import InputError
from tests.cluster.discover.outputs import gpus, topo_matrix


@pytest.fixture
def four_cores(monkeypatch):
    monkeypatch.setattr(here, "visible_gpus", tuple)
    monkeypatch.setattr(here, "physical_cores", lambda: 4)
    monkeypatch.setattr(here, "available_memory", lambda: 16 * 2**30)


@pytest.fixture
def with_gpus(monkeypatch):
    def install(*names, nvlink=True):
        gpus = tuple(
            Gpu(name=name, memory_bytes=80 * 2**30, free_bytes=70 * 2**30, nvlink=nvlink)
            for name in names
        )
        monkeypatch.setattr(here, "visible_gpus", lambda: gpus)

    return install


@pytest.mark.usefixtures("four_cores")
class TestCpuRanks:
    def test_there_is_one_rank_a_core_unless_told_otherwise(self):
        topology = this_machine()
        assert topology.num_accelerators == 4
        assert topology.is_here
        assert not topology.oversubscribed
        assert topology.accelerator.device_type == "cpu"

    def test_ranks_share_the_memory_that_is_available(self):
        assert this_machine(ranks=2).accelerator.memory_bytes == 8 * 2**30

    def test_more_ranks_than_cores_need_to_be_asked_for(self):
        with pytest.raises(InputError, match="8 ranks are more than the 4 cores") as caught:
            this_machine(ranks=8)
        assert "ranks: 4" in str(caught.value)
        assert "{here: {ranks: 8, oversubscribe: true}}" in str(caught.value)

    def test_ranks_that_share_a_core_share_its_speed(self):
        alone = this_machine(ranks=4)
        shared = this_machine(ranks=8, oversubscribe=True)
        assert shared.oversubscribed
        assert shared.accelerator.peak_flops_per_s["fp32"] == pytest.approx(
            alone.accelerator.peak_flops_per_s["fp32"] / 2
        )

    def test_figures_of_a_processor_are_marked_as_guesses(self):
        topology = this_machine()
        assert topology.levels[0].source == "guess"
        assert topology.accelerator.source.startswith("guess")

    def test_too_little_memory_for_the_ranks_is_refused(self):
        with pytest.raises(InputError, match=r"64 ranks need about .* ranks: 42 would fit"):
            this_machine(ranks=64, oversubscribe=True)


def test_required_memory_is_that_of_the_processes():
    require_memory(2, 2 * PROCESS_BYTES)
    with pytest.raises(InputError, match="ranks: 1 would fit"):
        require_memory(2, 2 * PROCESS_BYTES - 1)
    with pytest.raises(InputError, match="not one rank fits"):
        require_memory(1, PROCESS_BYTES - 1)


def test_gpus_are_taken_where_there_are_any(with_gpus):
    with_gpus(*["NVIDIA H100 80GB HBM3"] * 8)
    topology = this_machine()
    [link] = topology.levels
    assert topology.accelerator.name == "H100-SXM5-80"
    assert topology.accelerator.memory_bytes == 80 * 2**30
    assert (link.size, link.kind, link.bandwidth_bytes_per_s) == (8, "switch", 450e9)
    assert this_machine(ranks=2).num_accelerators == 2
    assert this_machine(free_memory=True).accelerator.memory_bytes == 70 * 2**30
    assert this_machine(device="cpu", ranks=1).accelerator.device_type == "cpu"


def test_gpus_without_nvlink_sit_on_the_bus(with_gpus):
    with_gpus("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3", nvlink=False)
    assert [level.kind for level in this_machine().levels] == ["bus"]


def test_links_that_join_pairs_only_are_no_link_of_all(with_gpus, monkeypatch):
    """Bridges between GPU 0 and 3 and between 1 and 2: ranks take the devices in that order."""
    with_gpus(*["A100-PCIe-80"] * 4)
    matrix = topo_matrix(gpus(4), lambda i, j: "NV12" if i + j == 3 else "SYS")
    (reading,) = readings_of(source_of("here", matrix))
    (host,) = reading.hosts
    named = tuple(replace(gpu, name="A100-PCIe") for gpu in host.gpus)
    found = replace(reading, hosts=(replace(host, gpus=named),))
    monkeypatch.setattr(here, "read_here", lambda: found)
    topology = this_machine()
    assert [(level.name, level.size) for level in topology.levels] == [("link", 2), ("host", 2)]
    assert topology.device_order == (0, 3, 1, 2)
    assert topology.is_here


def test_nccl_takes_one_rank_a_gpu(with_gpus):
    with_gpus("NVIDIA L40S")
    with pytest.raises(InputError, match="write ranks: 1, or device: cpu"):
        this_machine(ranks=4, oversubscribe=True)


def test_gpus_of_several_kinds_are_refused(with_gpus):
    with_gpus("NVIDIA L40S", "NVIDIA L4")
    with pytest.raises(InputError, match="GPUs of several kinds"):
        this_machine()


def test_a_gpu_that_is_asked_for_must_be_there(with_gpus):
    with_gpus()
    with pytest.raises(InputError, match="no NVIDIA GPU is visible"):
        this_machine(device="cuda")


def test_a_containers_limit_counts(monkeypatch):
    memory = namedtuple("memory", "available")
    monkeypatch.setattr(here.psutil, "virtual_memory", lambda: memory(available=100))
    monkeypatch.setattr(here, "_container_remainders", lambda: [40, 70])
    assert available_memory() == 40


def test_this_machine_is_read_for_real(tmp_path):
    topology = read_topology({"here": {"ranks": 1, "device": "cpu"}}, tmp_path)
    assert topology.hosts == (os.uname().nodename,)
    assert topology.accelerator.memory_bytes > 2**28
    assert topology.accelerator.peak_flops_per_s["fp32"] > 1e9
