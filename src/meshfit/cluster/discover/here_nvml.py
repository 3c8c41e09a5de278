"""The GPUs of this machine as NVML tells them, with their links, places and NVLink fabric."""

import ctypes
import uuid
from collections.abc import Callable
from typing import Any

from meshfit.cluster.discover.facts import FabricFacts, GpuFacts, HostFacts, Path, PathKind, pair
from meshfit.cluster.discover.pci import normal_bus_id

_LEVELS: dict[int, PathKind] = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""nvmlGpuTopologyLevel_t; 0 is one board."""
_STATES = {0: "Not Supported", 1: "Not Started", 2: "In Progress", 3: "Completed"}


def nvml_facts(nvml: Any, handles: list[Any]) -> HostFacts:
    """Facts of the GPUs behind ``handles``. What a driver or GPU does not support is None."""
    gpus = tuple(_gpu(nvml, handle, index) for index, handle in enumerate(handles))
    paths = {}
    for a, first in enumerate(handles):
        for b in range(a + 1, len(handles)):
            path = _path(nvml, first, handles[b], gpus[a], gpus[b])
            if path is not None:
                paths[pair(f"GPU{a}", f"GPU{b}")] = path
    switched = [_is_switched(nvml, handle) for handle in handles]
    return HostFacts(
        gpus=gpus,
        paths=_over_switch(gpus, switched, paths),
        peer_access=_peer_access(nvml, handles),
        has_switch=all(switched) if any(gpu.links_bytes_per_s for gpu in gpus) else None,
    )


def _asked(nvml: Any, name: str, *arguments: Any) -> Any:
    """An NVML call; None where it is not supported."""
    call: Callable[..., Any] | None = getattr(nvml, name, None)
    if call is None:
        return None
    try:
        return call(*arguments)
    except (nvml.NVMLError, TypeError):
        return None


def _gpu(nvml: Any, handle: Any, index: int) -> GpuFacts:
    memory = _asked(nvml, "nvmlDeviceGetMemoryInfo", handle)
    pci = _asked(nvml, "nvmlDeviceGetPciInfo", handle)
    mig = _asked(nvml, "nvmlDeviceGetMigMode", handle)
    return GpuFacts(
        label=f"GPU{index}",
        name=_text(_asked(nvml, "nvmlDeviceGetName", handle)),
        uuid=_text(_asked(nvml, "nvmlDeviceGetUUID", handle)),
        bus_id=None if pci is None else normal_bus_id(_text(pci.busId) or ""),
        gpu_numa_id=_asked(nvml, "nvmlDeviceGetNumaNodeId", handle),
        memory_bytes=None if memory is None else memory.total,
        free_bytes=None if memory is None else memory.free,
        links_bytes_per_s=_links(nvml, handle),
        pcie_generation=_asked(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", handle),
        pcie_width=_asked(nvml, "nvmlDeviceGetMaxPcieLinkWidth", handle),
        mig=None if mig is None else bool(mig[0]),
        fabric=_fabric(nvml, handle),
    )


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


_RATE_BY_VERSION = {1: 20e9, 2: 25e9, 3: 25e9, 4: 25e9, 5: 25e9, 6: 25e9, 7: 50e9}
"""NVML_NVLINK_VERSION (1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0) -> one direction of one link; a newer one
gets no rate here."""


def _links(nvml: Any, handle: Any) -> tuple[float, ...] | None:
    """Rates of the links that are up; None where the GPU has none."""
    rates: list[float] = []
    has_links = False
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        state = _asked(nvml, "nvmlDeviceGetNvLinkState", handle, link)
        if state is None:
            break
        has_links = True
        version = _asked(nvml, "nvmlDeviceGetNvLinkVersion", handle, link)
        if state:
            rates.append(_RATE_BY_VERSION.get(version, 0.0))
    return tuple(rates) if has_links and all(rates) else None


def _is_switched(nvml: Any, handle: Any) -> bool:
    """Whether its first link that is up ends at a switch."""
    switch = getattr(nvml, "NVML_NVLINK_DEVICE_TYPE_SWITCH", 2)
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        if _asked(nvml, "nvmlDeviceGetNvLinkState", handle, link):
            return bool(_asked(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link) == switch)
    return False


def _path(nvml: Any, a: Any, b: Any, first: GpuFacts, second: GpuFacts) -> Path | None:
    """Links that end at the other GPU, else the way over PCIe."""
    direct = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS if first.links_bytes_per_s else 0):
        remote = _asked(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", a, link)
        if remote is not None and normal_bus_id(_text(remote.busId) or "") == second.bus_id:
            direct += 1
    if direct:
        return Path(kind="NV", links=direct)
    level = _asked(nvml, "nvmlDeviceGetTopologyCommonAncestor", a, b)
    return Path(kind=_LEVELS[level]) if level in _LEVELS else None


def _over_switch(
    gpus: tuple[GpuFacts, ...], switched: list[bool], paths: dict[tuple[str, str], Path]
) -> dict[tuple[str, str], Path]:
    """GPUs whose links all end at a switch reach each other by all of them."""
    on_switch = [gpu for gpu, is_switched in zip(gpus, switched, strict=True) if is_switched]
    for index, a in enumerate(on_switch):
        for b in on_switch[index + 1 :]:
            links = min(len(a.links_bytes_per_s or ()), len(b.links_bytes_per_s or ()))
            if links:
                paths[pair(a.label, b.label)] = Path(kind="NV", links=links)
    return paths


def _peer_access(nvml: Any, handles: list[Any]) -> dict[tuple[str, str], str]:
    names = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS"}
    read = getattr(nvml, "NVML_P2P_CAPS_INDEX_READ", 0)
    found = {}
    for a, first in enumerate(handles):
        for b in range(a + 1, len(handles)):
            status = _asked(nvml, "nvmlDeviceGetP2PStatus", first, handles[b], read)
            if status is not None:
                found[pair(f"GPU{a}", f"GPU{b}")] = names.get(status, "U")
    return found


def _fabric(nvml: Any, handle: Any) -> FabricFacts | None:
    """None where the driver or the GPU knows no fabric."""
    for name in ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"):
        structure = getattr(nvml, name, None)
        if structure is None:
            continue
        info = structure()
        if _asked(nvml, "nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info)) is None:
            continue
        if info.state not in _STATES or info.state == 0:
            return None
        return FabricFacts(
            state=_STATES[info.state],
            status="Success" if info.status == 0 else f"error {info.status}",
            cluster_uuid=str(uuid.UUID(bytes=bytes(info.clusterUuid))),
            clique_id=str(info.cliqueId),
        )
    return None
