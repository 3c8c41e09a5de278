"""The GPUs of this machine as ROCm's amdsmi tells them."""

from typing import Any

from meshfit.cluster.discover.amd import gpu_paths
from meshfit.cluster.discover.facts import GpuFacts, HostFacts
from meshfit.cluster.discover.pci import normal_bus_id
from meshfit.cluster.discover.text import source_of


def amd_facts(smi: Any) -> HostFacts:
    """Facts of all GPUs; ``smi``: the ``amdsmi`` module, initialised."""
    handles = smi.amdsmi_get_processor_handles()
    labels = [f"GPU{index}" for index in range(len(handles))]
    weights = [[_weight(smi, a, b) for b in handles] for a in handles]
    links = [[_link(smi, a, b) for b in handles] for a in handles]
    hops = [[hop for hop, _ in row] for row in links]
    kinds = [[kind for _, kind in row] for row in links]
    return HostFacts(
        gpus=tuple(_gpu(smi, handle, label) for handle, label in zip(handles, labels, strict=True)),
        paths=gpu_paths(source_of("amdsmi", ""), labels, weights, hops, kinds),
    )


def _gpu(smi: Any, handle: Any, label: str) -> GpuFacts:
    vram = smi.AmdSmiMemoryType.VRAM
    total = _asked(smi, smi.amdsmi_get_gpu_memory_total, handle, vram)
    used = _asked(smi, smi.amdsmi_get_gpu_memory_usage, handle, vram)
    bus_id = _asked(smi, smi.amdsmi_get_gpu_device_bdf, handle)
    numa = _asked(smi, smi.amdsmi_topo_get_numa_node_number, handle)
    asic = _asked(smi, smi.amdsmi_get_gpu_asic_info, handle) or {}
    return GpuFacts(
        label=label,
        name=asic.get("market_name"),
        bus_id=None if bus_id is None else normal_bus_id(bus_id),
        numa=None if numa is None or numa < 0 else (numa,),
        memory_bytes=total,
        free_bytes=None if total is None or used is None else total - used,
    )


def _weight(smi: Any, a: Any, b: Any) -> str:
    if a is b:
        return "0"
    weight = _asked(smi, smi.amdsmi_topo_get_link_weight, a, b)
    return "" if weight is None else str(weight)


def _link(smi: Any, a: Any, b: Any) -> tuple[str, str]:
    """Hops and kind between two GPUs."""
    if a is b:
        return "0", "SELF"
    link = _asked(smi, smi.amdsmi_topo_get_link_type, a, b) or {}
    kind = link.get("type")
    xgmi = {name.value for enum in _link_enums(smi) for name in enum if "XGMI" in name.name}
    number = getattr(kind, "value", kind)
    return str(link.get("hops", "")), "XGMI" if number in xgmi else "PCIE"


def _link_enums(smi: Any) -> list[Any]:
    """The kinds of links: the enumeration was renamed in ROCm 6.4."""
    names = ("AmdSmiLinkType", "AmdSmiIoLinkType")
    return [enum for enum in (getattr(smi, name, None) for name in names) if enum is not None][:1]


def _asked(smi: Any, call: Any, *arguments: Any) -> Any:
    """What a call answers; None where it is not supported."""
    try:
        return call(*arguments)
    except smi.AmdSmiException:
        return None
