"""One rank of a world of any size, without the other ranks.

Everything that PyTorch or transformers must be told because tensors hold no values is here, each
with its reason. All of it is undone on the way out.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional_collectives
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.pipelining import schedules
from torch.distributed.pipelining._utils import InferenceMode
from torch.distributed.pipelining.schedules import _PipelineSchedule
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes


@contextmanager
def fake_world(rank: int, world_size: int) -> Iterator[None]:
    """A process group whose collectives return at once and move nothing; none for a world of one."""
    if world_size == 1:
        yield
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

    dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def fake_tensors(*, is_packed: bool = False) -> Iterator[FakeTensorMode]:
    """Inside, tensors are shapes: a step of the runner runs, and costs neither memory nor FLOPs.

    ``is_packed``: sequences hold several documents each.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with ExitStack() as stack:
        stack.enter_context(
            replaced(
                ShardingPropagator,
                "_propagate_tensor_meta_non_cached",
                _outside_of_modes(ShardingPropagator._propagate_tensor_meta_non_cached),
            )
        )
        stack.enter_context(replaced(_PipelineSchedule, "_warmup_p2p", _agree_on_shapes))
        stack.enter_context(
            replaced(schedules, "_batch_p2p", _holding_tensors(schedules._batch_p2p))
        )
        stack.enter_context(replaced(functional_collectives, "_are_we_tracing", lambda: False))
        stack.enter_context(_looks_at_positions())
        stack.enter_context(mode)
        stack.enter_context(_RealAnswers(is_packed=is_packed))
        yield mode


def replace_buffers(module: nn.Module, device: torch.device) -> None:
    """Make the real buffers of ``module`` fake; call it inside ``fake_tensors``."""
    for child in module.modules():
        for name, buffer in child._buffers.items():
            if buffer is not None:
                child._buffers[name] = torch.empty_like(buffer, device=device)


def adapt_ddp(module: DistributedDataParallel) -> None:
    """Let DDP reduce a bucket by the collective it would use, and keep its first buckets.

    Its own C++ hook reads the result from the collective's future, which holds none in a fake world.
    Once it would lay out its buckets anew, in the order in which gradients came: their sizes change
    by that, not their sum.
    """

    def reduce(_state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        flat = bucket.buffer()
        flat.div_(dist.get_world_size())
        dist.all_reduce(flat)
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(flat)
        return done

    module.register_comm_hook(None, reduce)
    module.reducer = _ReducerOfFirstBuckets(module.reducer)


class _ReducerOfFirstBuckets:
    """DDP's reducer without the exchange of bucket indices, which reads a tensor's values in C++."""

    def __init__(self, reducer: Any) -> None:
        self._reducer = reducer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)

    def _rebuild_buckets(self) -> bool:
        return False


class _RealAnswers(TorchDispatchMode):  # type: ignore[misc]  # PyTorch is Any to mypy
    """Answers operations as real tensors would, where fake ones cannot or do otherwise.

    - The runner asks for the value of one tensor of booleans, once a forward, through transformers: do
      all positions count up by one, that is, is every row one sequence? They do, but for documents
      packed into sequences.
    - The result of a collective is that of its operation, waited for or not; the fake versions give
      another tensor of that shape.
    """

    def __init__(self, *, is_packed: bool) -> None:
        super().__init__()
        self._is_packed = is_packed

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].dtype == torch.bool:
            return not self._is_packed
        if func is torch.ops._c10d_functional.wait_tensor.default:
            return args[0]
        if func is torch.ops._c10d_functional._wrap_tensor_autograd.default:
            return AsyncCollectiveTensor(args[0])
        return func(*args, **(kwargs or {}))


class _HeldWork:
    """A finished send or receive that holds its tensor as long as it lives, as Gloo's does."""

    def __init__(self, work: dist.Work, tensor: torch.Tensor) -> None:
        self._work = work
        self._tensor = tensor

    def wait(self) -> bool:
        return bool(self._work.wait())


def _holding_tensors(send_receive: Callable[..., list[dist.Work]]) -> Callable[..., Any]:
    """The pipeline's ``_batch_p2p``, its results holding what is sent and received."""

    def batch(operations: list[dist.P2POp], desc: str | None = None) -> list[_HeldWork]:
        works = send_receive(operations, desc)
        return [_HeldWork(w, one.tensor) for w, one in zip(works, operations, strict=True)]

    return batch


@contextmanager
def _looks_at_positions() -> Iterator[None]:
    """transformers looks at positions as it does with real tensors (see ``_RealAnswers``).

    It takes fake tensors for a compiler's, and then makes a mask for packed sequences in any case.
    """
    from transformers import masking_utils  # noqa: PLC0415

    with replaced(masking_utils, "is_tracing", lambda *_: False):
        yield


def _outside_of_modes(method: Callable[..., Any]) -> Callable[..., Any]:
    """DTensor works out global shapes by running an operation once; that run is no memory of ours."""

    def outside(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return method(*args, **kwargs)

    return outside


def _agree_on_shapes(
    _schedule: _PipelineSchedule, stages: list[Any], _has_backward: bool, _done: bool
) -> None:
    """The vote of all ranks on whether shapes are known, which they are; it would be a tensor's value."""
    for stage in stages:
        stage._inference_mode = InferenceMode.STATIC


@contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    """Inside, the attribute ``name`` of ``owner`` is ``value``."""
    original = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)
