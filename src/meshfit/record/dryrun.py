"""What is asked of a dry run: the input of ``python -m meshfit.dryrun.worker``."""

from dataclasses import dataclass
from typing import Any

import pydantic_core
from pydantic import ConfigDict, TypeAdapter
from typing_extensions import TypeAliasType

from meshfit.cluster.topology import DeviceType
from meshfit.mesh.spec import LayoutSpec
from meshfit.workload.training import TrainingSpec


@dataclass(frozen=True, kw_only=True)
class DryRunRequest:
    """One rank of one layout.

    Attributes:
        model_config: Hugging Face config, as read.
        capacity_bytes: memory of the device; None: without limit.
        whole: run every layer and micro-batch, instead of repeating those that are alike.
    """

    model_config: dict[str, Any]
    layout: LayoutSpec
    training: TrainingSpec
    rank: int
    device_type: DeviceType
    capacity_bytes: int | None = None
    whole: bool = False


_Document: Any = TypeAliasType("_Document", DryRunRequest)
_ADAPTER: TypeAdapter[DryRunRequest] = TypeAdapter(_Document, config=ConfigDict(extra="forbid"))


def encode_request(request: DryRunRequest) -> bytes:
    """The request as JSON."""
    return pydantic_core.to_json(request)


def decode_request(data: bytes) -> DryRunRequest:
    """The request that ``encode_request`` wrote."""
    return _ADAPTER.validate_json(data)
