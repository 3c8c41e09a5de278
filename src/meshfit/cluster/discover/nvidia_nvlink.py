"""``nvidia-smi nvlink -s`` (rate of every NVLink) and ``nvidia-smi -L`` (names alone)."""

import re
from dataclasses import replace

from meshfit.cluster.discover.facts import GpuFacts, HostFacts, Reading
from meshfit.cluster.discover.text import Line, SourceText

NAME = "nvidia-smi nvlink -s"

_GPU = re.compile(r"\s*GPU (\d+): (.+?) \(UUID: (\S+)\)\s*$")
_LINK = re.compile(r"\s*Link (\d+): (.+?)\s*$")
_RATE = re.compile(r"(\d+(?:\.\d+)?) GB/s")
_MIG = re.compile(r"\s*MIG \S+\s+Device\s+\d+:")
_ALL_DOWN = re.compile(r"all links are inactive", re.IGNORECASE)


def recognizes(source: SourceText) -> bool:
    return any(
        _GPU.match(line.text) or _LINK.match(line.text)
        for part in source.by_host
        for line in part.lines
    )


def read(source: SourceText) -> Reading:
    notes: list[str] = []
    hosts = tuple(_host(part, notes) for part in source.by_host)
    return Reading(source=source.name, format=NAME, hosts=hosts, notes=tuple(notes))


def _host(source: SourceText, notes: list[str]) -> HostFacts:
    gpus: list[GpuFacts] = []
    links = 0
    for line in source.lines:
        if gpu := _GPU.match(line.text):
            if any(known.label == f"GPU{gpu[1]}" for known in gpus):
                source.fail(line, f"GPU {gpu[1]} is there twice")
            gpus.append(GpuFacts(label=f"GPU{gpu[1]}", name=gpu[2], uuid=gpu[3]))
            links = 0
        elif link := _LINK.match(line.text):
            if not gpus:
                source.fail(
                    line, f"link {link[1]} comes before any line like 'GPU 0: NAME (UUID: ...)'"
                )
            if int(link[1]) != links:
                source.fail(
                    line, f"link {link[1]} of {gpus[-1].label} where link {links} comes next"
                )
            links += 1
            gpus[-1] = _with_link(source, line, gpus[-1], link[2])
        elif _MIG.match(line.text) and gpus:
            gpus[-1] = replace(gpus[-1], mig=True)
        elif _ALL_DOWN.search(line.text) and gpus:
            gpus[-1] = replace(gpus[-1], links_bytes_per_s=(), links_down=None)
            notes.append(f"{gpus[-1].label}: all NVLinks are inactive")
        elif re.match(r"\s*(GPU|Link) \d", line.text):
            source.fail(line, f"{line.text.strip()!r} is no whole line of a GPU or a link")
    return HostFacts(host=source.host, gpus=tuple(gpus))


def _with_link(source: SourceText, line: Line, gpu: GpuFacts, value: str) -> GpuFacts:
    rates, down = gpu.links_bytes_per_s or (), gpu.links_down or 0
    if rate := _RATE.fullmatch(value):
        return replace(gpu, links_bytes_per_s=(*rates, float(rate[1]) * 1e9), links_down=down)
    if value.strip("<>").lower() in ("inactive", "n/a", "not supported"):
        return replace(gpu, links_bytes_per_s=rates, links_down=down + 1)
    return source.fail(line, f"{value!r} is no rate like 25 GB/s and not <inactive>")
