"""A script that is to be started on every host of a layout.

It is told where it runs by variables: ``NNODES``, ``NODE_RANK`` (its host's place), ``MASTER_ADDR`` (the
first host), and for torchrun ``RDZV_BACKEND`` and ``RDZV_ENDPOINT``. With ``static`` ranks lie in the
order of hosts; torchrun's own ``c10d`` orders hosts by name.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from meshfit.cluster.catalogue import accelerator_entry
from meshfit.cluster.topology import AcceleratorSpec
from meshfit.errors import InputError

PORT = 29500

_RESOURCES = {
    "NVIDIA": "nvidia.com/gpu",
    "AMD": "amd.com/gpu",
    "Intel": "habana.ai/gaudi",
    "Google": "google.com/tpu",
}


@dataclass(frozen=True, kw_only=True)
class HostScript:
    """What a scheduler starts.

    Attributes:
        name: of the job, for people.
        script: its file name, beside the job's file.
        about: what it is, for what release, on which prediction; lines of a header.
        hosts: names in rank order; empty: as the scheduler gives them.
        serves: it is a server, which does not end by itself.
    """

    name: str
    script: str
    about: tuple[str, ...]
    num_hosts: int
    devices_per_host: int
    accelerator: AcceleratorSpec
    hosts: tuple[str, ...] = ()
    serves: bool = False

    def header(self, status: str, *notes: str) -> list[str]:
        """Lines that a job's file begins with; ``notes`` say what a person has to do."""
        return commented((*self.about, f"Status: {status}", *notes))


def commented(lines: Iterable[str]) -> list[str]:
    """``lines`` as comments of a shell, Python or YAML: one each, whatever names are in them."""
    return [f"# {' '.join(line.split())}" for line in lines]


def plain_name(text: str) -> str:
    """``text`` as a name that needs no quoting: what is neither a letter, a digit nor one of ``. - _`` is
    an underscore, and it has at most 100 characters."""
    return re.sub(r"[^\w.-]+", "_", text, flags=re.ASCII)[:100].strip("_") or "job"


def label_name(text: str) -> str:
    """``text`` as Kubernetes and SkyPilot take names: a-z, 0-9 and -, at most 63."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].rstrip("-")
    return name if name[:1].isalpha() else f"job-{name}"[:63].rstrip("-")


def device_resource(accelerator: AcceleratorSpec) -> str | None:
    """What Kubernetes calls the accelerator; None for a processor's cores, which it counts itself.

    Raises:
        InputError: it is none whose device plugin is known.
    """
    if accelerator.device_type == "cpu":
        return None
    vendor = accelerator_entry(accelerator.name).vendor
    if vendor not in _RESOURCES:
        raise InputError(
            f"{accelerator.name}: how Kubernetes calls it is not known for vendor {vendor!r}; known "
            f"are {', '.join(_RESOURCES)} (vendor: in your own catalogue)"
        )
    return _RESOURCES[vendor]


def manifest(header: Sequence[str], document: Mapping[str, Any]) -> str:
    """A document as YAML, keys in the order given and lines of a script as they are, behind a header."""
    text = yaml.dump(dict(document), Dumper=_Dumper, sort_keys=False, width=100)
    return "\n".join([*header, text])


class _Dumper(yaml.SafeDumper):
    """YAML with texts of several lines as blocks."""


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
