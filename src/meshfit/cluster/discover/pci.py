"""PCI: addresses, device classes, link rates, and the device ids of accelerators."""

import re
from typing import Literal

DeviceKind = Literal["gpu", "nic", "bridge"]

_BUS_ID = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?")
_CLASSES: dict[str, DeviceKind] = {
    "0302": "gpu", "0380": "gpu", "1200": "gpu", "0b40": "gpu",
    "0200": "nic", "0207": "nic", "0208": "nic", "0280": "nic", "0c06": "nic",
    "0604": "bridge",
}  # fmt: skip
"""3D controller, AMD's display controller and processing accelerator; Ethernet, InfiniBand (0c06
before PCI 3.0), other fabrics; PCI-to-PCI bridge."""
_VENDORS_OF_GPUS = ("10de", "1002")
"""A VGA controller (0300) is an accelerator from NVIDIA or AMD; from others it is a console."""

_TRANSFERS_PER_LANE = {1: 2.5e9, 2: 5e9, 3: 8e9, 4: 16e9, 5: 32e9, 6: 64e9}
_PAYLOAD = {1: 0.8, 2: 0.8, 3: 128 / 130, 4: 128 / 130, 5: 128 / 130, 6: 242 / 256}

ACCELERATORS = {
    "10de:1db1": "V100-SXM2-16", "10de:1db5": "V100-SXM2-32",
    "10de:20b0": "A100-SXM4-40", "10de:20b2": "A100-SXM4-80", "10de:20b5": "A100-PCIe-80",
    "10de:20f3": "A800-SXM4-80", "10de:2237": "A10G", "10de:1eb8": "T4",
    "10de:2230": "RTX-A6000", "10de:2204": "RTX3090", "10de:2684": "RTX4090",
    "10de:2b85": "RTX5090", "10de:26b9": "L40S", "10de:27b8": "L4",
    "10de:2330": "H100-SXM5-80", "10de:2331": "H100-PCIe-80", "10de:2321": "H100-NVL-94",
    "10de:2324": "H800-SXM5-80", "10de:2329": "H20-96", "10de:2335": "H200-SXM-141",
    "10de:2901": "B200-SXM-180", "10de:2941": "GB200",
    "1002:74a1": "MI300X", "1002:74b5": "MI300X", "1002:74a5": "MI325X",
}  # fmt: skip
"""vendor:device -> accelerator of the catalogue (the PCI ID Repository; 74b5 is a virtual function
of MI300X). Devices that the catalogue does not have are left out."""


def normal_bus_id(text: str) -> str:
    """``0000:19:00.0`` of ``00000000:19:00.0`` and the like, in lower case."""
    match = _BUS_ID.fullmatch(text.strip().lower())
    if match is None:
        return text.strip().lower()
    domain = match[1][-4:] if not match[1][:-4].strip("0") else match[1]
    return f"{domain}:{match[2]}:{match[3]}.{match[4] or '0'}"


def device_kind(class_code: str, vendor: str) -> DeviceKind | None:
    """What a device is, from its class (hexadecimal, 4 or 6 digits) and vendor; None: neither."""
    code = class_code.lower().removeprefix("0x")[:4]
    if code == "0300" and vendor.lower().removeprefix("0x") in _VENDORS_OF_GPUS:
        return "gpu"
    return _CLASSES.get(code)


def accelerator_name(vendor: str, *devices: str) -> str | None:
    """The accelerator of the catalogue that the first known one of the device ids is."""
    vendor = vendor.lower().removeprefix("0x")
    ids = (f"{vendor}:{device.lower().removeprefix('0x')}" for device in devices)
    return next((ACCELERATORS[key] for key in ids if key in ACCELERATORS), None)


def pcie_bytes_per_s(generation: int, width: int) -> float | None:
    """Rate of a link in one direction after its encoding (PCI Express base specification: 8b/10b up
    to generation 2, 128b/130b up to 5, flits in 6), before packet headers."""
    if generation not in _TRANSFERS_PER_LANE or width < 1:
        return None
    return _TRANSFERS_PER_LANE[generation] * width * _PAYLOAD[generation] / 8


def generation_of(link_speed: str) -> int | None:
    """PCIe generation of ``16 GT/s``, ``32.0 GT/s PCIe``; None when it does not say."""
    match = re.match(r"\s*(\d+(?:\.\d+)?)\s*GT/s", link_speed)
    if match is None:
        return None
    rates = {rate: generation for generation, rate in _TRANSFERS_PER_LANE.items()}
    return rates.get(float(match[1]) * 1e9)
