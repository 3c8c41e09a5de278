"""What a call for communication is: its kind, and which axis of the mesh it runs along.

Told at the call site, by the operation that reaches PyTorch's dispatcher: a backend's own span
names do not serve (Gloo logs a reduce-scatter as an all-reduce, and no group at all).
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup
from torch.distributed.distributed_c10d import _resolve_process_group

from meshfit.measure.timeline.axes import named_axis

NAMESPACES = ("c10d", "_c10d_functional")

_KINDS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "allgather": "all_gather",
    "allgather_base": "all_gather",
    "allgather_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "send": "p2p",
    "recv": "p2p",
    "recv_any_source": "p2p",
}
_WAIT = "wait_tensor"
_NO_CALLS = (_WAIT, "_wrap_tensor_autograd")


def is_call(func: Any) -> bool:
    """Whether an operation of the dispatcher starts a communication."""
    return func.namespace in NAMESPACES and func._opname not in _NO_CALLS


def is_wait(func: Any) -> bool:
    """Whether an operation of the dispatcher waits for a functional collective's result."""
    return func.namespace in NAMESPACES and func._opname == _WAIT


def kind_of(func: Any) -> str:
    """``all_reduce``, ``all_gather``, ``reduce_scatter``, ``all_to_all``, ``p2p``, or its own name."""
    name = func._opname.strip("_")
    return _KINDS.get(name, name)


def group_of(func: Any, args: tuple[Any, ...]) -> dist.ProcessGroup:
    """The process group a call goes to."""
    names = [argument.name for argument in func._schema.arguments]
    if "process_group" in names:
        return ProcessGroup.unbox(args[names.index("process_group")])
    return _resolve_process_group(args[names.index("group_name")])


def axis_of(group: dist.ProcessGroup, axes: Mapping[str, str]) -> str:
    """The mesh axis that the caller has named, else that of the group's name; its description where
    there is neither."""
    return named_axis() or axes.get(group.group_name, group.group_desc)


def ends_of(func: Any, args: tuple[Any, ...], group: dist.ProcessGroup) -> dict[str, int]:
    """``source`` and ``target`` of a message as global ranks; empty for a collective."""
    if kind_of(func) != "p2p":
        return {}
    me, other = dist.get_rank(), dist.get_global_rank(group, args[2])
    is_send = func._opname == "send"
    return {"source": me, "target": other} if is_send else {"source": other, "target": me}


def size_bytes(args: tuple[Any, ...]) -> int:
    """Bytes of the largest tensor, or list of tensors, among a call's arguments."""
    return max((_bytes(argument) for argument in args), default=0)


def _bytes(argument: object) -> int:
    if isinstance(argument, torch.Tensor):
        return argument.nbytes
    if isinstance(argument, list | tuple):
        return sum(_bytes(item) for item in argument)
    return 0
