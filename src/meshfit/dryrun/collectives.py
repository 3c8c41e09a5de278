"""Collectives as PyTorch issues them: kind, mesh axis, bytes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from meshfit.measure.timeline.axes import named_axis

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


def message_of(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    result: object,
    axes: Mapping[str, str],
) -> Message | None:
    """What an operation sends; None when it is no collective. ``axes``: of groups, by their names."""
    name = func.name().partition(".")[0]
    if name not in _KINDS:
        return None
    kind, where = _KINDS[name]
    whole = {_FIRST: args[0], _SECOND: args[1], _RESULT: result}[where]
    axis = named_axis() or _axis_of_group((*args, *kwargs.values()), axes)
    return Message(kind=kind, axis=axis, size_bytes=_bytes(whole))


def _axis_of_group(arguments: tuple[Any, ...], axes: Mapping[str, str]) -> str:
    for value in arguments:
        name = _group_name(value)
        if name is not None and name in axes:
            return axes[name]
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
