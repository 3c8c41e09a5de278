"""What ``meshfit topo`` is about: this machine, a description, or files that tools wrote."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from meshfit.cluster.discover.conclude import FoundCluster, conclude, read_cluster, topology_of
from meshfit.cluster.discover.document import discovery_document
from meshfit.cluster.discover.here import read_here
from meshfit.cluster.discover.merge import merge
from meshfit.cluster.document import topology_document
from meshfit.cluster.files import read_topology
from meshfit.cluster.here import available_memory
from meshfit.cluster.topology import Topology
from meshfit.errors import InputError
from meshfit.files import is_file

_CLUSTER_FILE = re.compile(r"^(levels|matrix|here)\s*:", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """``found``: what tools say, None for a description. ``topology``: None where it is not whole."""

    document: dict[str, Any]
    topology: Topology | None
    found: FoundCluster | None

    def whole(self) -> Topology:
        """The topology. Raises InputError with what is missing."""
        if self.topology is not None:
            return self.topology
        assert self.found is not None
        return topology_of(self.found)


def shown_cluster(arguments: Sequence[str], accelerator: str | None) -> Shown:
    """The cluster that the arguments name.

    Raises:
        InputError: files beside a description, a file of no known format, or one that is broken.
    """
    if not arguments or list(arguments) == ["here"]:
        return _here(accelerator)
    if any(_is_tool_output(argument) for argument in arguments):
        return _files([Path(argument) for argument in arguments], accelerator)
    if len(arguments) > 1:
        raise InputError(
            f"{arguments[0]!r} and {arguments[1]!r}: several arguments must be files that tools wrote "
            f"(nvidia-smi topo -m, NCCL's XML, Slurm's topology.conf ...)"
        )
    if accelerator is not None:
        refuse_accelerator(accelerator, repr(arguments[0]))
    topology = read_topology(arguments[0], Path())
    return Shown(document=topology_document(topology), topology=topology, found=None)


def refuse_accelerator(accelerator: str, named_by: str) -> NoReturn:
    """Raises InputError: ``named_by`` is a description, which names its accelerator itself."""
    raise InputError(
        f"--accelerator {accelerator} is for what tools printed; {named_by} names its accelerator itself"
    )


def _is_tool_output(argument: str) -> bool:
    """A file that is no cluster.yaml."""
    path = Path(argument)
    if not is_file(path):
        return False
    try:
        with path.open("rb") as file:
            head = file.read(1 << 20).decode("utf-8", errors="replace")
    except OSError:
        return True  # the reader says why
    return path.suffix not in (".yaml", ".yml") or _CLUSTER_FILE.search(head) is None


def _files(paths: Sequence[Path], accelerator: str | None) -> Shown:
    found = read_cluster(paths, accelerator)
    topology = None if found.problems else topology_of(found)
    return Shown(document=discovery_document(found), topology=topology, found=found)


def _here(accelerator: str | None) -> Shown:
    """This machine; its GPUs with all that the driver says of them, else ranks on its processors."""
    found = conclude(merge([read_here()]), accelerator)
    if found.discovery.gpus:
        document = discovery_document(found) | {"here": True}
        topology = None if found.problems else topology_of(found)
        return Shown(document=document, topology=topology, found=found)
    if accelerator is not None:
        raise InputError(
            f"--accelerator {accelerator}: no GPU was found on this machine that could be one; leave it "
            f"out, or name the files that a tool wrote"
        )
    topology = read_topology("here", Path())
    node = discovery_document(found)
    document = topology_document(topology) | {
        "memory_free": available_memory(),
        "network_cards": node["network_cards"],
        "processors": dict(found.discovery.node.cpus) if found.discovery.node else {},
    }
    return Shown(document=document, topology=topology, found=None)
