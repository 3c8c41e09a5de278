"""The formats that are read, and which of them a source is. Told by content, never by name."""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from meshfit.cluster.discover import (
    amd_smi,
    hwloc_xml,
    ibnetdiscover,
    kubernetes,
    nccl_xml,
    nvidia_nvlink,
    nvidia_p2p,
    nvidia_q,
    nvidia_query,
    nvidia_topo,
    rocm_topo,
    slurm_conf,
    slurm_yaml,
    topograph,
)
from meshfit.cluster.discover.facts import Reading
from meshfit.cluster.discover.text import SourceText
from meshfit.errors import InputError

_WHOLE = (nccl_xml, hwloc_xml, slurm_yaml, topograph, kubernetes, slurm_conf, ibnetdiscover)
"""A source is all of one of these."""
_PARTS = (
    rocm_topo,
    amd_smi,
    nvidia_topo,
    nvidia_p2p,
    nvidia_nvlink,
    nvidia_q,
    nvidia_query,
)
"""Output of commands; one file may hold that of several."""


@dataclass(frozen=True)
class Format:
    name: str
    recognizes: Callable[[SourceText], bool]
    read: Callable[[SourceText], Reading]


def _format(module: ModuleType) -> Format:
    return Format(module.NAME, module.recognizes, module.read)


FORMATS: tuple[Format, ...] = tuple(map(_format, (*_WHOLE, *_PARTS)))


def readings_of(source: SourceText) -> tuple[Reading, ...]:
    """What a source says, one reading for each command whose output it holds.

    Raises:
        InputError: it is of no format known here, or broken; with the line where there is one.
    """
    whole = next((f for f in map(_format, _WHOLE) if f.recognizes(source)), None)
    if whole is not None:
        return (whole.read(source),)
    parts = [f for f in map(_format, _PARTS) if f.recognizes(source)]
    if not parts:
        known = ", ".join(form.name for form in FORMATS)
        raise InputError(f"{source.name}: no topology that is known here; known: {known}")
    return tuple(form.read(source) for form in parts)
