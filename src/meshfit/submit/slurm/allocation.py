"""The nodes of the Slurm job that this process runs in, as a launch takes them."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence

from meshfit.cluster.hostlist import expand_hosts
from meshfit.cluster.topology import Topology
from meshfit.errors import InputError
from meshfit.lab.hosts import visible_devices
from meshfit.launch.hosts import LaunchHost
from meshfit.record.variables import HOST_VARIABLE

NODES_VARIABLE = "SLURM_JOB_NODELIST"
THIS_NODE_VARIABLE = "SLURMD_NODENAME"

_ADDRESS = re.compile(r"\bNodeAddr=(\S+)")


def allocated_nodes(
    wanted: Sequence[str] = (), environment: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """Names of the nodes, in the order of ``wanted`` where there is one, else in Slurm's own.

    Raises:
        InputError: this process is in no job, or one of its nodes is not among ``wanted``.
    """
    listed = environment.get(NODES_VARIABLE)
    if not listed:
        raise InputError(f"this process runs in no Slurm job ({NODES_VARIABLE} is not set)")
    nodes = expand_hosts(listed)
    if not wanted:
        return nodes
    if strangers := [node for node in nodes if node not in wanted]:
        raise InputError(
            f"the job has {', '.join(strangers)}, but the cluster's hosts are {', '.join(wanted)}"
        )
    return tuple(host for host in wanted if host in nodes)


def allocated_hosts(
    nodes: Sequence[str], topology: Topology, environment: Mapping[str, str] = os.environ
) -> tuple[LaunchHost, ...]:
    """``nodes`` as a launch takes them: ranks of this node start here, those of others by srun."""
    here = environment.get(THIS_NODE_VARIABLE)
    return tuple(
        LaunchHost(
            name=address_of(node),
            ranks=topology.gpus_per_host,
            prefix=() if node == here else srun(node),
            keeps_parent=node == here,
            place=place,
            environment={HOST_VARIABLE: node, **visible_devices(topology, environment)},
        )
        for place, node in enumerate(nodes)
    )


def srun(node: str) -> tuple[str, ...]:
    """What starts a command on one node of this job, with all that the job has there.

    ``--overlap``: beside a step that is just ending; ``--mem=0``: all of the job's memory.
    """
    return (
        "srun",
        "--quiet",
        "--nodes=1",
        "--ntasks=1",
        f"--nodelist={node}",
        "--overlap",
        "--mem=0",
        "--cpu-bind=none",
    )


def address_of(node: str) -> str:
    """By which other nodes reach ``node``: what Slurm's configuration says, else its name."""
    command = ("scontrol", "show", "node", node, "--oneliner")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = _ADDRESS.search(done.stdout)
    return found.group(1) if found else node
