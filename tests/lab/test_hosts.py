from dataclasses import replace

from meshfit.cluster.shorthand import read_shorthand
from meshfit.lab.hosts import in_device_order, launch_hosts


def test_a_machine_needs_no_hosts_unless_its_devices_are_taken_in_another_order(monkeypatch):
    topology = read_shorthand("4 H100-SXM")
    assert launch_hosts(topology) == ()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (here,) = launch_hosts(replace(topology, device_order=(0, 3, 1, 2)))
    assert here.environment == {"CUDA_VISIBLE_DEVICES": "0,3,1,2"}
    assert here.ranks == 4


def test_devices_are_those_that_are_visible_already():
    seen = {"CUDA_VISIBLE_DEVICES": "4,5, 6,GPU-7"}
    assert in_device_order((0, 3, 1, 2), seen) == "4,GPU-7,5,6"
