"""Peak memory of one training step by category, by following every tensor's storage.

The CPU has no allocator that knows its peak, and CUDA's allocator knows no categories; so the
tensors themselves are followed: a dispatch mode sees every operation of the step, its new storages
are added up, and their ends are told by weak references.

What a storage counts as, in the words of ``meshfit.breakdown.MemoryBreakdown``:

- ``parameters``, ``gradients``, ``optimizer``: what this rank holds between steps, that is its own
  shards: parameters of the given modules, their ``.grad``, the tensors in the optimizer's state.
- ``communication``: what exists only because the former are divided over ranks or synchronised:
  FSDP2's gathered full parameters, gather and reduce-scatter buffers and full-size gradients before
  they are reduced; DDP's buckets (unless gradients are views of them); pipeline receive buffers;
  outputs of collectives outside the forward, and what they copy inside as far as it can be seen.
- ``logits_and_loss``: made from ``lm_head`` on, in the loss, and in the backward of both.
- ``activations``: anything else made in the forward or recomputed in the backward, among it the
  results of functional collectives (tensor and sequence parallel), which autograd keeps like any
  other operation's result.
- ``temporary``: anything else made in the backward, the optimizer's step or between the two.
- ``unattributed``: older than the step and none of the above: module buffers, batches made before.

A storage has one category all its life, see ``ledger``.

Not seen: memory that kernels and communication libraries take inside one operation, what lies
below PyTorch (CUDA context, NCCL), and operations inside a compiled graph.
"""

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import nn
from torch._guards import active_fake_mode
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from meshfit.breakdown import MemoryBreakdown
from meshfit.measure.ledger import Ledger, Moment
from meshfit.measure.phases import Phase, StepPhases

_CATEGORY_OF_PHASE: dict[Phase, str] = {
    "forward": "activations",
    "recompute": "activations",
    "loss": "logits_and_loss",
    "loss_backward": "logits_and_loss",
    "backward": "temporary",
    "optimizer": "temporary",
    "between": "temporary",
}
_OWNED = ("parameters", "gradients", "optimizer")
_CUDA_BLOCK_BYTES = 512
"""Granularity of PyTorch's CUDA caching allocator (kMinBlockSize in CUDACachingAllocator)."""


class TensorTracker(TorchDispatchMode):
    """Follows every storage on one device during one training step.

    Used once, around a whole step, after steps that made the optimizer's state and DDP's buckets::

        with TensorTracker(model_parts, optimizer) as tracker:
            step()
        tracker.peak(), tracker.peak_at

    Args:
        parts: every module this rank trains (all virtual stages of a pipeline).
        optimizer: the one that steps them.
        device: whose storages are counted; default: that of the first parameter.
    """

    def __init__(
        self,
        parts: nn.Module | Sequence[nn.Module],
        optimizer: Optimizer | None = None,
        *,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        self._parts = [parts] if isinstance(parts, nn.Module) else list(parts)
        self._optimizer = optimizer
        self._device = device or next(p for part in self._parts for p in part.parameters()).device
        self._ledger = Ledger()
        self._phases = StepPhases(self._parts, optimizer)
        self._blocks: dict[int, int] = {}
        """Address of a live storage -> its block in the ledger."""
        self._references: dict[int, weakref.ref[Any]] = {}
        self._met: set[int] = set()
        """Storages first met as an operation's input. Those that outlive the step, such as DDP's
        buckets, are taken to be older than it; others were made where no operation is seen."""
        self._freed: deque[int] = deque()
        self._cleanup = ExitStack()

    def peak(self) -> MemoryBreakdown:
        """Bytes by category at the moment the sum was highest."""
        return self._ledger.peak()[0]

    @property
    def peak_at(self) -> Moment:
        """The operation that brought the sum to its highest, and the phase it ran in."""
        return self._ledger.peak()[1]

    def live(self) -> MemoryBreakdown:
        """Bytes by category now."""
        self._drop_freed()
        return self._ledger.live()

    def __enter__(self) -> "TensorTracker":
        self._fake_mode = active_fake_mode()
        self._claim_owned()
        self._ledger.mark("start", "between")
        with ExitStack() as stack:
            stack.enter_context(self._phases)
            stack.enter_context(_StorageResizes(self._resized))
            for parameter in filter(lambda p: p.requires_grad, self._parameters()):
                hook = parameter.register_post_accumulate_grad_hook(self._claim_gradient)
                stack.callback(hook.remove)
            if self._optimizer is not None:
                stack.callback(self._optimizer.register_step_pre_hook(self._claim_owned).remove)
                stack.callback(self._optimizer.register_step_post_hook(self._claim_owned).remove)
            super().__enter__()
            self._cleanup = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._cleanup.close()
        self._claim_owned()
        for key in self._met.intersection(self._blocks):
            self._ledger.backdate(self._blocks[key])

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a wrapper such as DTensor: its inner operations come by next
        result = func(*args, **(kwargs or {}))
        # DTensor works out shapes by running operations on fake tensors: these hold no memory.
        if active_fake_mode() is self._fake_mode:
            self._record(func, args, kwargs, result)
        return result

    def _record(self, func: Any, args: tuple[Any, ...], kwargs: Any, result: object) -> None:
        self._drop_freed()
        phase = self._phases.now()
        for tensor in _tensors((args, kwargs)):
            self._met.update(self._follow(tensor, _category_of_stranger(phase)))
        for tensor in _tensors(result):
            self._follow(tensor, _category_of_result(func.namespace, phase))
        for tensor in _tensors(_buffers_of_collective(func, args, kwargs)):
            self._assign(tensor, "communication", unless=_OWNED)
        self._ledger.mark(func.name(), phase)

    def _follow(self, tensor: torch.Tensor, category: str) -> list[int]:
        """Bring a tensor's storages up to date; returns those not followed before."""
        if not self._counts(tensor.device):
            return []
        return [s._cdata for s in _storages(tensor) if self._follow_storage(s, category)]

    def _follow_storage(self, storage: torch.UntypedStorage, category: str) -> bool:
        """Bring one storage's size up to date; whether it was not followed before."""
        key, size_bytes = storage._cdata, self._held_bytes(storage)
        if key in self._blocks:
            self._ledger.resize(self._blocks[key], size_bytes)
            return False
        self._blocks[key] = self._ledger.birth(size_bytes, category)
        self._references[key] = weakref.ref(storage, partial(self._note_freed, key))
        return True

    def _assign(self, tensor: torch.Tensor, category: str, *, unless: Sequence[str] = ()) -> None:
        blocks = [self._blocks[s._cdata] for s in _storages(tensor) if s._cdata in self._blocks]
        for block in blocks:
            if self._ledger.category(block) not in unless:
                self._ledger.assign(block, category)

    def _claim_owned(self, *_: object) -> None:
        """Give parameters, gradients and optimizer state, as they are now, their categories."""
        self._drop_freed()
        for category, tensors in (
            ("unattributed", (buffer for part in self._parts for buffer in part.buffers())),
            ("parameters", self._parameters()),
            ("gradients", (p.grad for p in self._parameters() if p.grad is not None)),
            ("optimizer", _optimizer_tensors(self._optimizer)),
        ):
            for tensor in tensors:
                self._met.update(self._follow(tensor, category))
                self._assign(tensor, category)

    def _claim_gradient(self, parameter: torch.Tensor) -> None:
        self._drop_freed()
        self._follow(parameter.grad, "gradients")
        self._assign(parameter.grad, "gradients")

    def _parameters(self) -> Iterator[nn.Parameter]:
        return (parameter for part in self._parts for parameter in part.parameters())

    def _resized(self, storage: torch.UntypedStorage) -> None:
        """A storage was freed or refilled in place, as FSDP2 does with gathered parameters."""
        self._drop_freed()
        if storage._cdata in self._blocks or self._counts(storage.device):
            self._follow_storage(storage, "communication")
            self._ledger.mark("UntypedStorage.resize_", self._phases.now())

    def _note_freed(self, key: int, _reference: weakref.ref[Any]) -> None:
        # May be called from any thread and at any point: the books are kept elsewhere.
        self._freed.append(key)

    def _drop_freed(self) -> None:
        while self._freed:
            key = self._freed.popleft()
            del self._references[key]
            self._met.discard(key)
            self._ledger.resize(self._blocks.pop(key), 0)

    def _counts(self, device: torch.device) -> bool:
        if self._fake_mode is not None and device.type == "meta":
            return True  # the storage below a fake tensor
        return device.type == self._device.type and device.index in (self._device.index, None)

    def _held_bytes(self, storage: torch.UntypedStorage) -> int:
        if self._device.type == "cuda":
            return -(-storage.nbytes() // _CUDA_BLOCK_BYTES) * _CUDA_BLOCK_BYTES
        return storage.nbytes()


def _category_of_stranger(phase: Phase) -> str:
    """Category of a storage met as an input. No data come in during a backward, so one met there
    was made inside a collective (Gloo's reduce-scatter copies its input) or is a bucket of DDP."""
    return "communication" if phase in ("backward", "loss_backward") else "unattributed"


def _category_of_result(namespace: str, phase: Phase) -> str:
    collective = namespace in ("c10d", "_c10d_functional", "fsdp")
    if collective and phase not in ("forward", "recompute", "loss"):
        return "communication"
    return _CATEGORY_OF_PHASE[phase]


def _buffers_of_collective(func: Any, args: tuple[Any, ...], kwargs: Any) -> object:
    """Arguments of an operation that are communication buffers.

    All of FSDP2's copies in and out. Of the plain collectives, which write into their first
    argument, that one; but a send only reads it.
    """
    if func.namespace == "fsdp":
        return (args, kwargs)
    if func.namespace == "c10d" and func._opname != "send":
        return args[0]
    return ()


def _tensors(tree: object) -> Iterator[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from _tensors(item)
    elif isinstance(tree, dict):
        yield from _tensors(list(tree.values()))


def _storages(tensor: torch.Tensor) -> Iterator[torch.UntypedStorage]:
    """Storages of a tensor: its own, or those of the tensors it wraps (DTensor: the local one)."""
    if hasattr(tensor, "__tensor_flatten__"):
        for name in tensor.__tensor_flatten__()[0]:
            yield from _storages(getattr(tensor, name))
    elif isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
        yield tensor.untyped_storage()


def _optimizer_tensors(optimizer: Optimizer | None) -> Iterable[torch.Tensor]:
    """State of an optimizer; of the one inside where it is wrapped (ZeroRedundancyOptimizer)."""
    if optimizer is None:
        return ()
    inner = getattr(optimizer, "optim", optimizer)
    return _tensors(list(inner.state.values()))


class _StorageResizes:
    """While entered, calls ``on_resize(storage)`` after each ``UntypedStorage.resize_``.

    A resize is no operation and so escapes a dispatch mode; hence the method itself is replaced.
    """

    def __init__(self, on_resize: Callable[[torch.UntypedStorage], None]) -> None:
        self._on_resize = on_resize

    def __enter__(self) -> None:
        original = self._original = torch.UntypedStorage.resize_
        on_resize = self._on_resize

        def resize_(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
            result = original(storage, size)
            on_resize(storage)
            return result

        torch.UntypedStorage.resize_ = resize_

    def __exit__(self, *_: object) -> None:
        torch.UntypedStorage.resize_ = self._original
