"""cluster.yaml as a person writes it. Pydantic guards it; ``cluster.files`` makes a ``Topology``."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from meshfit.cluster.topology import LevelKind, Source, Transport

Count = Annotated[int, Field(gt=0, strict=True)]


DeviceIndex = Annotated[int, Field(ge=0, lt=1024, strict=True)]


class Strict(BaseModel):
    """A block of the file; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Sourced(Strict):
    """A number that says where it comes from."""

    value: str | float
    source: Source = Field(alias="from")


Quantity = Annotated[str, Field(strict=True)] | Annotated[float, Field(strict=True)] | Sourced


class LevelFile(Strict):
    """One level. ``from`` here is the source of those of its numbers that carry none. ``groups``:
    devices of a host by domain, where those of a domain are not neighbours."""

    name: Annotated[str, Field(min_length=1)]
    size: Count
    kind: LevelKind
    bandwidth: Quantity
    latency: Quantity | None = None
    rails: Annotated[bool, Field(strict=True)] = False
    oversubscription: Annotated[float, Field(ge=1)] = 1.0
    transport: Transport | None = None
    groups: list[list[DeviceIndex]] | None = None
    source: Source = Field(default="typed", alias="from")


class StorageFile(Strict):
    write: str


class ClusterFile(Strict):
    """``matrix``: paths between the accelerators of one host, as ``nvidia-smi topo -m`` prints them;
    the levels inside a host follow from it, and ``levels`` are those around it."""

    schema_version: Literal[1]
    accelerator: str
    gpus_per_host: Count | None = None
    matrix: str | None = None
    levels: list[LevelFile] = []
    hosts: str | list[str] | None = None
    memory: str | Count = "total"
    host_memory: str | Count | None = None
    storage: StorageFile | None = None


class HereFile(Strict):
    """This machine. ``memory: free`` counts what a GPU has free now instead of its whole memory."""

    ranks: Count | None = None
    oversubscribe: Annotated[bool, Field(strict=True)] = False
    device: Literal["auto", "cpu", "cuda"] = "auto"
    memory: Literal["total", "free"] = "total"


class HereBlock(Strict):
    here: HereFile


class LabFile(Strict):
    """Hosts made on this machine; ``between`` as in ``200 Mb/s`` or ``200Mbit``."""

    hosts: Count | Annotated[str, Field(strict=True)] | list[str]
    ranks_per_host: Count = 1
    between: str
    latency: str | None = None


class LabBlock(Strict):
    schema_version: Literal[1] = 1
    lab: LabFile
