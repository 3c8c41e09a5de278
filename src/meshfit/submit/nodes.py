"""The nodes that a job was given, as a launch takes them, whichever scheduler gave them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from meshfit.cluster.topology import Topology
from meshfit.launch.hosts import LaunchHost
from meshfit.submit.errands import attend, dismiss
from meshfit.submit.kubernetes import kubectl
from meshfit.submit.kubernetes.pods import place_of_this_pod, pod_folder, pod_hosts
from meshfit.submit.slurm.allocation import allocated_hosts, allocated_nodes


@dataclass(frozen=True, kw_only=True)
class JobNodes:
    """Names in rank order, and hosts to launch on; none where another node leads."""

    names: tuple[str, ...]
    hosts: tuple[LaunchHost, ...]


@contextmanager
def nodes_of_job(scheduler: str, topology: Topology, folder: Path) -> Iterator[JobNodes | None]:
    """The nodes of the job that this process runs in, for as long as the block lasts; None on a pod that
    is not the first, once the first has let it go. ``folder``: that all nodes share.

    Raises:
        InputError: this process is in no job of ``scheduler``.
    """
    if scheduler != kubectl.NAME:
        names = allocated_nodes(topology.hosts)
        yield JobNodes(names=names, hosts=allocated_hosts(names, topology))
        return
    if (place := place_of_this_pod()) > 0:
        attend(pod_folder(folder, place))
        yield None
        return
    hosts = pod_hosts(topology, folder)
    try:
        yield JobNodes(names=tuple(f"pod{place}" for place in range(len(hosts))), hosts=hosts)
    finally:
        for place in range(1, len(hosts)):
            dismiss(pod_folder(folder, place))
