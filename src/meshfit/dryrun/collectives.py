"""Collectives as PyTorch issues them: kind, mesh axis, bytes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from meshfit.mesh.spec import AXES
from meshfit.run.context.attention import ContextParallel
from meshfit.run.experts.model import ExpertModel
from meshfit.run.mesh import RankMesh

WORLD = "world"
"""Axis of a collective over every rank."""

_FIRST, _SECOND, _RESULT = "first", "second", "result"

_KINDS: dict[str, tuple[str, str]] = {
    "c10d::_allgather_base_": ("all_gather", _FIRST),
    "c10d::_reduce_scatter_base_": ("reduce_scatter", _SECOND),
    "c10d::allreduce_": ("all_reduce", _FIRST),
    "c10d::broadcast_": ("broadcast", _FIRST),
    "c10d::send": ("send", _FIRST),
    "c10d::recv_": ("recv", _FIRST),
    "c10d::alltoall_base_": ("all_to_all", _SECOND),
    "_c10d_functional::all_gather_into_tensor": ("all_gather", _RESULT),
    "_c10d_functional::reduce_scatter_tensor": ("reduce_scatter", _FIRST),
    "_c10d_functional::all_reduce": ("all_reduce", _FIRST),
    "_c10d_functional::all_to_all_single": ("all_to_all", _FIRST),
}
"""Operation -> kind, and which of its arguments (or its result) is the whole message."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """One collective: ``size_bytes`` is that of the undivided tensor."""

    kind: str
    axis: str
    size_bytes: int


class Groups:
    """Names of process groups -> mesh axes."""

    def __init__(
        self,
        mesh: RankMesh,
        context: ContextParallel | None = None,
        experts: ExpertModel | None = None,
    ) -> None:
        self._axes: dict[str, str] = {}
        if mesh.devices is None:
            return
        self._axes[dist.group.WORLD.group_name] = WORLD
        states = {"dp_shard": mesh.shards, "dp_replicate": mesh.replicas}  # and cp with them
        for axis, submesh in [*states.items(), *((axis, mesh.axis(axis)) for axis in AXES)]:
            if submesh is not None:
                self._axes[submesh.get_group().group_name] = axis
        exchanges = (context.keys, context.heads) if context is not None else ()
        self._axes |= {group.group_name: "cp" for group in exchanges if group is not None}
        if experts is not None:
            self._axes |= {group.group_name: axis for axis, group in experts.groups()}

    def message(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: object
    ) -> Message | None:
        """What an operation sends; None when it is no collective."""
        name = func.name().partition(".")[0]
        if name not in _KINDS:
            return None
        kind, where = _KINDS[name]
        whole = {_FIRST: args[0], _SECOND: args[1], _RESULT: result}[where]
        return Message(kind=kind, axis=self._axis(args, kwargs), size_bytes=_bytes(whole))

    def _axis(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        for value in (*args, *kwargs.values()):
            name = _group_name(value)
            if name in self._axes:
                return self._axes[name]
        raise AssertionError("a collective over a group that no mesh axis has")


def _group_name(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, torch.ScriptObject) and "ProcessGroup" in str(value._type()):
        return str(dist.ProcessGroup.unbox(value).group_name)
    return None


def _bytes(whole: object) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(whole))


def _tensors(tree: object) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from _tensors(item)
