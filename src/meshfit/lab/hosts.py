"""The hosts of a lab, or this machine, as a launch sees them."""

import os
from collections.abc import Mapping, Sequence

from meshfit.cluster.topology import Topology
from meshfit.lab.commands import LINK, start_prefix
from meshfit.launch.hosts import LaunchHost


def launch_hosts(topology: Topology) -> tuple[LaunchHost, ...]:
    """Where a launch starts its ranks; empty on this machine, unless its devices are to be taken in
    another order than theirs."""
    lab = topology.lab
    if lab is None:
        return _this_machine(topology)
    return tuple(
        LaunchHost(
            name=host,
            ranks=lab.ranks_per_host,
            prefix=start_prefix(host),
            environment={"GLOO_SOCKET_IFNAME": LINK},
        )
        for host in lab.hosts
    )


def _this_machine(topology: Topology) -> tuple[LaunchHost, ...]:
    if not topology.device_order:
        return ()
    devices = visible_devices(topology, os.environ)
    return (LaunchHost(name="localhost", ranks=topology.gpus_per_host, environment=devices),)


def visible_devices(topology: Topology, environment: Mapping[str, str]) -> dict[str, str]:
    """What makes ranks of a host take its devices in the topology's order; nothing where that is
    their own."""
    order = topology.device_order
    return {"CUDA_VISIBLE_DEVICES": in_device_order(order, environment)} if order else {}


def in_device_order(order: Sequence[int], environment: Mapping[str, str]) -> str:
    """CUDA_VISIBLE_DEVICES with what processes see now in another order."""
    seen = environment.get("CUDA_VISIBLE_DEVICES")
    devices = seen.split(",") if seen else [str(index) for index in range(len(order))]
    return ",".join(devices[index].strip() for index in order)
