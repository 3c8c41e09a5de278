"""The cluster of a serving job, also where only its kind of accelerator is given."""

from pathlib import Path

from meshfit.cluster.files import read_topology
from meshfit.cluster.topology import Topology
from meshfit.errors import InputError
from meshfit.serve.job.spec import ServingJob
from meshfit.serve.setting.layout import Deployment

_PER_HOST = 8


def topology_for(job: ServingJob, deployment: Deployment) -> Topology:
    """The job's cluster; under ``cluster: auto x NAME`` the smallest that holds ``deployment``.

    Raises:
        InputError: no cluster of that many accelerators is known.
    """
    if job.topology is not None:
        return job.topology
    return cluster_of(job.accelerator, deployment.num_accelerators)


def cluster_of(accelerator: str, count: int) -> Topology:
    """``count`` accelerators in one host, else in hosts of eight (some of which may stay unused)."""
    try:
        return read_topology(f"{count} {accelerator}", Path())
    except InputError:
        return read_topology(f"{-(-count // _PER_HOST)}x{_PER_HOST} {accelerator}", Path())
