"""The clusters of the table of collectives, by the names that it gives them."""

from functools import cache

from meshfit.cluster.catalogue import (
    accelerator,
    default_node_type,
    is_known,
    node_type,
    node_types,
)
from meshfit.cluster.catalogue import accelerators as catalogue
from meshfit.cluster.shorthand import network_level, read_shorthand
from meshfit.cluster.topology import Topology
from meshfit.validate.rows import NotModelledError

_NAMES: dict[str, str] = {
    "a100_sxm": "A100-SXM4-80",
    "h100_sxm": "H100-SXM5-80",
    "h200_sxm": "H200-SXM-141",
    "b200_sxm": "B200-SXM-180",
    "b300_sxm": "B300-SXM-288",
    "gb200": "GB200",
    "gb300": "GB300",
    "l40s": "L40S",
    "rtx_pro_6000_server": "RTX-PRO-6000-BSE",
    "a100_8gpu_node": "A100-SXM4-80",
    "a100_2node": "Azure-NDv4",
    "h100_4gpu_node": "H100-SXM5-80",
    "h100_8gpu_node": "H100-SXM5-80",
    "h100_32node_8x400G": "DGX-H100",
    "h800_8node": "H800-SXM5-80",
    "coreweave_h100_ndr": "DGX-H100",
    "aws_p4de_a100_80g": "AWS-p4de",
    "aws_topology_aware": "AWS-p5",
    "mi300x_8gpu_node": "HGX-MI300X",
    "rtx5090_8gpu_pcie": "RTX5090",
    "v100_8node_100G": "V100-SXM2-16",
    "gb10_2node": "GB10",
}
"""System of the table -> accelerator or node type of the catalogue. A name that the catalogue has
too stands for itself."""

_NETWORKS: dict[str, float] = {"gb10_2node": 25e9, "v100_8node_100G": 12.5e9 / 8}
"""Bytes per second of the network per accelerator, where the table says it (200 Gb/s a node of one,
100 Gb/s a node of eight) and no node type has it."""


@cache
def topology_of(system: str, nodes: int, ranks_per_node: int) -> Topology:
    """What joins the ranks of one run: whole nodes, but of PCIe alone only those that take part.

    Raises:
        NotModelledError: the table does not say which accelerator, or the catalogue has no links.
    """
    name = _NAMES.get(system, system)
    if not (is_known(name, catalogue()) or is_known(name, node_types())):
        raise NotModelledError(f"not in the catalogue: {system}")
    rate = _NETWORKS.get(system)
    if rate is None:
        return read_shorthand(f"{nodes}x{_whole_node(name, ranks_per_node)} {name}")
    network = network_level(nodes, rate)
    if ranks_per_node > 1:
        inside = read_shorthand(f"1x{ranks_per_node} {name}")
        return Topology(
            accelerator=inside.accelerator,
            levels=(*inside.levels, network),
            gpus_per_host=ranks_per_node,
        )
    return Topology(accelerator=accelerator(name), levels=(network,), gpus_per_host=1)


def _whole_node(name: str, ranks: int) -> int:
    """Accelerators of a node whose switch or mesh gives ``ranks`` of them their full rate."""
    node = node_type(name) if is_known(name, node_types()) else default_node_type(name)
    return ranks if node is None or node.link_kind is None else max(ranks, node.gpus_per_host)
