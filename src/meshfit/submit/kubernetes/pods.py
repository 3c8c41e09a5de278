"""The pods of the TrainJob that this process runs in, as a launch takes them.

Kubeflow Trainer's torch runtime gives every pod PET_NNODES, PET_NODE_RANK and PET_MASTER_ADDR.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from meshfit.cluster.topology import Topology
from meshfit.errors import InputError
from meshfit.lab.hosts import visible_devices
from meshfit.launch.hosts import LaunchHost
from meshfit.record.variables import HOST_VARIABLE
from meshfit.submit.errands import errand_prefix


def place_of_this_pod(environment: Mapping[str, str] = os.environ) -> int:
    """Its number; the first leads.

    Raises:
        InputError: this process is in no pod of the torch runtime.
    """
    return int(_variable("PET_NODE_RANK", environment))


def pod_folder(folder: Path, place: int) -> Path:
    """Where the first pod and another leave errands and answers."""
    return folder / "pods" / str(place)


def pod_hosts(
    topology: Topology, folder: Path, environment: Mapping[str, str] = os.environ
) -> tuple[LaunchHost, ...]:
    """All pods: ranks of this one, the first, start here, those of others as errands."""
    master = _variable("PET_MASTER_ADDR", environment)
    return tuple(
        _host(place, topology, folder, master, environment)
        for place in range(int(_variable("PET_NNODES", environment)))
    )


def _host(
    place: int, topology: Topology, folder: Path, master: str, environment: Mapping[str, str]
) -> LaunchHost:
    variables = {HOST_VARIABLE: f"pod{place}", **visible_devices(topology, environment)}
    return LaunchHost(
        name=master if place == 0 else f"pod{place}",
        ranks=topology.gpus_per_host,
        prefix=() if place == 0 else errand_prefix(pod_folder(folder, place), variables),
        keeps_parent=place == 0,
        place=place,
        environment=variables,
    )


def _variable(name: str, environment: Mapping[str, str]) -> str:
    if name not in environment:
        raise InputError(
            f"this process runs in no pod of Kubeflow Trainer's torch runtime ({name} is not set)"
        )
    return environment[name]
