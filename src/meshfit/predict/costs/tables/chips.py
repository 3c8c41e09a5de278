"""Which measured chip an accelerator of the catalogue computes with, and what chips are made of."""

from dataclasses import dataclass

CHIP_OF: dict[str, str] = {
    "A100-SXM4-40": "A100",
    "A100-SXM4-80": "A100",
    "A100-PCIe-40": "A100",
    "A100-PCIe-80": "A100",
    "A800-SXM4-80": "A100",
    "H100-SXM5-80": "H100",
    "H100-SXM5-96": "H100",
    "H800-SXM5-80": "H100",
    "GH200-96": "H100",
    "GH200-144": "H200",
    "H200-SXM-141": "H200",
    "B200-SXM-180": "B200",
    "B300-SXM-288": "B300",
    "GB200": "GB200",
    "GB300": "GB300",
    "L40S": "L40S",
    "RTX-6000-Ada": "L40S",
    "RTX-PRO-6000-BSE": "RTX-PRO-6000",
}
"""Accelerator -> chip of the tables. Equal chips under other memory or links share a name."""


@dataclass(frozen=True, kw_only=True)
class Chip:
    """Of an accelerator: how many cores of matmul units it has, and its rated power in watts."""

    num_cores: int
    rated_power_w: float


CHIPS: dict[str, Chip] = {
    name: Chip(num_cores=cores, rated_power_w=power)
    for name, cores, power in (
        ("V100-SXM2-16", 80, 300.0),
        ("V100-SXM2-32", 80, 300.0),
        ("T4", 40, 70.0),
        ("RTX2080Ti", 68, 250.0),
        ("A10G", 80, 300.0),
        ("A30", 56, 165.0),
        ("A40", 84, 300.0),
        ("RTX-A6000", 84, 300.0),
        ("RTX3080", 68, 320.0),
        ("RTX3090", 82, 350.0),
        ("A100-SXM4-40", 108, 400.0),
        ("A100-SXM4-80", 108, 400.0),
        ("A100-PCIe-40", 108, 250.0),
        ("A100-PCIe-80", 108, 300.0),
        ("A800-SXM4-80", 108, 400.0),
        ("H100-SXM5-80", 132, 700.0),
        ("H100-SXM5-96", 132, 700.0),
        ("H100-PCIe-80", 114, 350.0),
        ("H100-NVL-94", 132, 400.0),
        ("H800-SXM5-80", 132, 700.0),
        ("H20-96", 78, 400.0),
        ("H200-SXM-141", 132, 700.0),
        ("GH200-96", 132, 700.0),
        ("GH200-144", 132, 700.0),
        ("L4", 58, 72.0),
        ("L40", 142, 300.0),
        ("L40S", 142, 350.0),
        ("RTX-6000-Ada", 142, 300.0),
        ("RTX4060", 24, 115.0),
        ("RTX4080", 76, 320.0),
        ("RTX4090", 128, 450.0),
        ("RTX5090", 170, 575.0),
        ("RTX-PRO-6000-BSE", 188, 600.0),
        ("B200-SXM-180", 148, 1000.0),
        ("B300-SXM-288", 148, 1100.0),
        ("GB200", 148, 1200.0),
        ("GB300", 148, 1400.0),
        ("MI210", 104, 300.0),
        ("MI250-GCD", 104, 280.0),
        ("MI250X-GCD", 110, 280.0),
        ("MI300X", 304, 750.0),
        ("MI325X", 304, 1000.0),
        ("MI355X", 256, 1400.0),
    )
}
"""Streaming multiprocessors or compute units, and power, from ml-engineering 2026-08
(compute/accelerator); those of V100, GH200, RTX, Blackwell, small cards and AMD before MI300X partly
from memory."""

_LINKS: dict[str, tuple[str, ...]] = {
    "NVLink2": ("V100-SXM2-16", "V100-SXM2-32"),
    "NVLink3": ("A100-SXM4-40", "A100-SXM4-80", "A100-PCIe-40", "A100-PCIe-80", "A800-SXM4-80"),
    "NVLink4": (
        "H100-SXM5-80", "H100-SXM5-96", "H100-NVL-94", "H800-SXM5-80", "H20-96", "H200-SXM-141",
        "GH200-96", "GH200-144",
    ),
    "NVLink5": ("B200-SXM-180", "B300-SXM-288", "GB200", "GB300"),
    "xGMI": ("MI300X", "MI325X", "MI355X"),
}  # fmt: skip
LINK_OF: dict[str, str] = {name: link for link, names in _LINKS.items() for name in names}
"""Accelerator -> kind of its own links; the others have none."""
