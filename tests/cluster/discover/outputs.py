"""Outputs of tools, written here in the forms that the tools use."""

from collections.abc import Callable, Mapping, Sequence

LEGEND = "\nLegend:\n\n  X    = Self\n  SYS  = across NUMA nodes\n  NV#  = # NVLinks\n"
TITLES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")


def topo_matrix(
    labels: Sequence[str],
    path: Callable[[int, int], str],
    *,
    trailing: Sequence[str] = (),
    titles: Sequence[str] = TITLES,
    legend: Mapping[str, str] | None = None,
) -> str:
    """``nvidia-smi topo -m`` with tabs; ``trailing`` is the end of each GPU's row, as printed."""
    titles = titles if trailing else ()
    lines = ["\t\x1b[4m" + "\t".join([*labels, *titles]) + "\x1b[0m"]
    for i, label in enumerate(labels):
        cells = [" X " if i == j else path(i, j) for j in range(len(labels))]
        end = trailing[i] if i < len(trailing) else "\t".join("" for _ in titles)
        lines.append("\t".join([label, *cells, *([end] if titles else [])]))
    text = "\n".join(lines) + "\n" + LEGEND
    if legend:
        text += "\nNIC Legend:\n\n" + "".join(f"  {k}: {v}\n" for k, v in legend.items())
    return text


def gpus(count: int) -> list[str]:
    return [f"GPU{index}" for index in range(count)]


def sockets(count: int, *, near: str = "NODE", far: str = "SYS") -> Callable[[int, int], str]:
    """Two halves: ``near`` inside one, ``far`` across."""
    half = count // 2
    return lambda i, j: near if (i < half) == (j < half) else far


def affinities(count: int) -> list[str]:
    """Trailing cells of GPUs on two NUMA nodes."""
    return [
        f"{32 * (2 * i // count)}-{32 * (2 * i // count) + 31}\t{2 * i // count}\t\tN/A"
        for i in range(count)
    ]


def with_spaces(text: str) -> str:
    """Tabs as the spaces that a terminal shows."""
    return text.expandtabs(8)


def nvlink_status(names: Sequence[str], rates: Sequence[str]) -> str:
    lines = []
    for index, name in enumerate(names):
        lines.append(f"GPU {index}: {name} (UUID: GPU-{index:08d}-0000-0000-0000-000000000000)")
        lines += [f"\t Link {link}: {rate}" for link, rate in enumerate(rates)]
    return "\n".join(lines) + "\n"


def p2p(count: int, status: str) -> str:
    labels = gpus(count)
    rows = ["\t".join([f" {a}", *("X" if a == b else status for b in labels), ""]) for a in labels]
    return "\n".join([" \t" + "\t".join(labels) + "\t", *rows]) + "\n\nLegend:\n\n  X    = Self\n"


def rocm_topo(count: int, *, kind: str = "XGMI", weight: int = 15, hops: int = 1) -> str:
    labels = gpus(count)

    def table(title: str, cell: str) -> str:
        rows = [f"{'':7}" + "".join(f"{label:13}" for label in labels)]
        rows += [
            f"{a:7}" + "".join(f"{'0' if a == b else cell:13}" for b in labels) for a in labels
        ]
        return f"{f' {title} between two GPUs ':=^80}\n" + "\n".join(rows) + "\n\n"

    numa = "".join(
        f"GPU[{i}]\t\t: (Topology) Numa Node: {2 * i // count}\n"
        f"GPU[{i}]\t\t: (Topology) Numa Affinity: {2 * i // count}\n"
        for i in range(count)
    )
    return (
        f"\n{' ROCm System Management Interface ':=^80}\n"
        + table("Weight", str(weight))
        + table("Hops", str(hops))
        + table("Link Type", kind)
        + f"{' Numa Nodes ':=^80}\n{numa}{' End of ROCm SMI Log ':=^80}\n"
    )


def amd_smi_topology(buses: Sequence[str], *, kind: str = "XGMI") -> str:
    def table(title: str, own: str, other: str) -> str:
        rows = [" " * 13 + " ".join(buses)]
        rows += [
            " ".join([a, *((own if a == b else other).ljust(12) for b in buses)]) for a in buses
        ]
        return f"{title} TABLE:\n" + "\n".join(rows) + "\n\n"

    return (
        table("ACCESS", "ENABLED", "ENABLED")
        + table("WEIGHT", "0", "15")
        + table("HOPS", "0", "1")
        + table("LINK TYPE", "SELF", kind)
        + table("NUMA BW", "N/A", "50000-50000")
        + "Legend:\n  SELF = Current GPU\n"
    )


def nccl_xml(*, gpus_per_cpu: int = 2, cpus: int = 2, detected: bool = True, links: int = 0) -> str:
    """A switch with its GPUs and a card below every processor."""
    lines = ['<system version="1">']
    for cpu in range(cpus):
        lines.append(f'  <cpu numaid="{cpu}" affinity="ff" arch="x86_64">')
        lines.append(
            f'    <pci busid="ffff:ff:0{cpu}.0" class="0x060400" link_speed="16 GT/s" link_width="16">'
        )
        for index in range(gpus_per_cpu):
            dev = cpu * gpus_per_cpu + index
            lines.append(
                f'      <pci busid="0000:{dev:02x}:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s PCIe" link_width="16">'
            )
            if detected:
                link = (
                    f'<nvlink target="0000:f0:00.0" count="{links}" tclass="0x068000"/>'
                    if links
                    else ""
                )
                lines.append(f'        <gpu dev="{dev}" sm="90" rank="{dev}" gdr="1">{link}</gpu>')
            lines.append("      </pci>")
        lines.append(
            f'      <pci busid="0000:8{cpu}:00.0" class="0x020700" vendor="0x15b3" link_speed="32.0 GT/s PCIe" link_width="16">'
        )
        if detected:
            lines.append(
                f'        <nic><net name="mlx5_{cpu}" dev="{cpu}" speed="400000" port="1"/></nic>'
            )
        lines += ["      </pci>", "    </pci>", "  </cpu>"]
    return "\n".join([*lines, "</system>"]) + "\n"


def fabric(uuid: str, clique: str, *, state: str = "Completed", status: str = "Success") -> str:
    return (
        "    Fabric\n"
        f"        State                             : {state}\n"
        f"        Status                            : {status}\n"
        f"        CliqueId                          : {clique}\n"
        f"        ClusterUUID                       : {uuid}\n"
    )


UUID = "7f3c2a10-5b4e-4d6a-9c1e-2b8f0e6d4a91"


def nvidia_q(count: int, *, name: str = "NVIDIA GB200", attached: int | None = None) -> str:
    """The parts of ``nvidia-smi -q`` that are read."""
    text = f"\n==============NVSMI LOG==============\n\nAttached GPUs                             : {attached or count}\n"
    for index in range(count):
        text += (
            f"GPU 0000000{index}:01:00.0\n"
            f"    Product Name                          : {name}\n"
            f"    MIG Mode\n        Current                           : Disabled\n"
            "    GPU Link Info\n        PCIe Generation\n"
            "            Max                           : 5\n            Current                       : 1\n"
            "        Link Width\n            Max                           : 16x\n"
            "    FB Memory Usage\n"
            "        Total                             : 189471 MiB\n"
            "        Free                              : 188000 MiB\n"
        ) + fabric(UUID, "7")
    return text


def kubernetes_nodes(count: int, *, per_domain: int, gpus_per_node: int = 4) -> str:
    nodes = "".join(
        f"- kind: Node\n  metadata:\n    name: node{i:02d}\n    labels:\n"
        f"      nvidia.com/gpu.count: '{gpus_per_node}'\n"
        f"      nvidia.com/gpu.product: NVIDIA-GB200\n"
        f"      nvidia.com/gpu.clique: {UUID}.{i // per_domain}\n"
        f"      fabric.topograph.run/tier-0: leaf{i // per_domain}\n"
        f"      fabric.topograph.run/tier-1: spine\n"
        for i in range(count)
    )
    return "apiVersion: v1\nkind: List\nitems:\n" + nodes


def ibnetdiscover(leaves: int, hosts: int, uplinks: int) -> str:
    """``leaves`` rails: card i of every host on leaf i."""
    text = "#\n# Topology file: generated\n#\n"
    for leaf in range(leaves):
        text += (
            f"\nvendid=0x2c9\nswitchguid=0x{leaf:016x}({leaf:016x})\n"
            f'Switch\t65 "S-{leaf:016x}"\t\t# "MF0;leaf{leaf}:MQM9700/U1" enhanced port 0 lid {leaf} lmc 0\n'
        )
        for host in range(hosts):
            guid = f"{leaf + 1:08x}{host:08x}"
            text += f'[{host + 1}]\t"H-{guid}"[1]({guid}) \t\t# "node{host} mlx5_{leaf}" lid {host} 4xNDR\n'
        for link in range(uplinks):
            text += f'[{40 + link}]\t"S-{99:016x}"[{link + 1}]\t\t# "MF0;spine:MQM9700/U1" lid 9 4xNDR\n'
    text += f'\nSwitch\t65 "S-{99:016x}"\t\t# "MF0;spine:MQM9700/U1" enhanced port 0 lid 9 lmc 0\n'
    text += f'[1]\t"S-{0:016x}"[40]\t\t# "MF0;leaf0:MQM9700/U1" lid 0 4xNDR\n'
    return text


def hwloc_xml(nodes: int, *, gpus_per_node: int) -> str:
    packages = ""
    for node in range(nodes):
        devices = "".join(
            f'<object type="Bridge" bridge_type="1-1"><object type="PCIDev" pci_busid="000{node}:{i:02x}:00.0" '
            'pci_type="0302 [10de:2330] [10de:0000] a1"/></object>\n'
            for i in range(gpus_per_node)
        )
        packages += (
            f'<object type="Package" os_index="{node}" nodeset="0x{1 << node:08x}">\n'
            f'<object type="NUMANode" os_index="{node}" cpuset="0x000000ff"/>\n'
            f'<object type="Bridge" bridge_type="0-1">\n{devices}'
            f'<object type="PCIDev" pci_busid="000{node}:80:00.0" pci_type="0207 [15b3:1021] [15b3:0000] 00">'
            f'<object type="OSDev" name="mlx5_{node}"/></object>\n</object></object>\n'
        )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
        f'<topology version="2.0">\n<object type="Machine" nodeset="0x{(1 << nodes) - 1:08x}">\n{packages}'
        "</object></topology>\n"
    )
