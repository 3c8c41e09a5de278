"""Records one step of this rank: every operation it computes and every call for communication.

A dispatch mode sees both below autograd, DTensor and DDP, so nothing is asked of the training
loop. It costs some ten microseconds an operation; no throughput is ever taken from a recorded step.

On the CPU an operation's span is that of its call. On a device the call only queues kernels: there
``torch.profiler`` tells when they ran, and each communication is found again by a label put around
its call (see ``kernels``).
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import Work as WorkHandle
from torch._guards import active_fake_mode
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from meshfit.measure.intervals import Interval
from meshfit.measure.phases import Phase, StepPhases
from meshfit.measure.timeline import calls
from meshfit.measure.timeline.gaps import HostGaps
from meshfit.measure.timeline.spans import Call, Computation, HostGap, StepTrace, Work

_WORK_OF_PHASE: dict[Phase, Work] = {"recompute": "recompute", "optimizer": "optimizer"}
LABEL = "meshfit.call."
"""Start of the profiler's label around a call; its number among the step's calls follows."""


@dataclass(kw_only=True)
class _Pending:
    """A call whose end may still come."""

    what: dict[str, Any]
    begin_s: float
    end_s: float
    handle: WorkHandle | None = None
    """Kept alive, so that it stays the same object that the caller waits for."""


@dataclass(kw_only=True)
class _Open:
    """Calls that someone will wait for: by the identity of their handle, by their result's storage."""

    by_handle: dict[int, _Pending] = field(default_factory=dict)
    by_storage: dict[int, _Pending] = field(default_factory=dict)


class StepRecorder(TorchDispatchMode):
    """Records what happens while it is entered, which is one step::

        with StepRecorder(stages, optimizer, axes=axes) as recorder:
            step()
        trace = recorder.trace(rank, input_waits)

    Args:
        parts: every module this rank trains.
        optimizer: the one that steps them.
        axes: name of a process group -> mesh axis of calls whose axis nobody names (``axes.along``).
    """

    def __init__(
        self, parts: Sequence[nn.Module], optimizer: Optimizer | None, *, axes: Mapping[str, str]
    ) -> None:
        super().__init__()
        self._phases = StepPhases(parts, optimizer)
        self._axes = axes
        self._computations: list[Computation] = []
        self._calls: list[_Pending] = []
        self._open = _Open()
        self._between = HostGaps()
        self._gaps: tuple[HostGap, ...] = ()
        self._epoch_s = time.time() - time.perf_counter()
        self._begin_s = self._end_s = 0.0
        self._cleanup = ExitStack()

    def __enter__(self) -> "StepRecorder":
        self._fake_mode = active_fake_mode()
        self._cleanup.enter_context(self._phases)
        self._cleanup.enter_context(_Waits(self._waited))
        self._begin_s = self._left()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._end_s = self._entered()
        self._gaps = self._between.close()
        self._cleanup.close()

    def trace(self, rank: int, input_waits: Sequence[Interval] = ()) -> StepTrace:
        """The step as the host saw it; ``input_waits`` in seconds of ``time.perf_counter``."""
        return StepTrace(
            rank=rank,
            begin_s=self._begin_s,
            end_s=self._end_s,
            computations=tuple(self._computations),
            calls=tuple(
                Call(**call.what, begin_s=call.begin_s, end_s=call.end_s) for call in self._calls
            ),
            input_waits=tuple(
                (self._epoch_s + begin, self._epoch_s + end) for begin, end in input_waits
            ),
            gaps=self._gaps,
        )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a wrapper such as DTensor: its inner operations come by next
        kwargs = kwargs or {}
        if calls.is_call(func):
            return self._call(func, args, kwargs)
        if active_fake_mode() is not self._fake_mode:  # DTensor tries out shapes on fake tensors
            return func(*args, **kwargs)
        begin_s = self._entered()
        result = func(*args, **kwargs)
        end_s = self._left()
        if calls.is_wait(func):
            self._end_by_storage(args, end_s)
        elif func.namespace not in calls.NAMESPACES:
            work = _WORK_OF_PHASE.get(self._phases.now(), "compute")
            computation = Computation(name=str(func), work=work, begin_s=begin_s, end_s=end_s)
            self._computations.append(computation)
        return result

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        group = calls.group_of(func, args)
        what = {
            "collective": calls.kind_of(func),
            "axis": calls.axis_of(group, self._axes),
            "group": group.group_name,
            "ranks": tuple(dist.get_process_group_ranks(group)),
            "size_bytes": calls.size_bytes(args),
            **calls.ends_of(func, args, group),
        }
        begin_s = self._entered()
        call = _Pending(what=what, begin_s=begin_s, end_s=begin_s)
        with torch.profiler.record_function(f"{LABEL}{len(self._calls)}"):
            result = func(*args, **kwargs)
        call.end_s = self._left()
        self._calls.append(call)
        self._await(call, result)
        return result

    def _await(self, call: _Pending, result: Any) -> None:
        """See to it that the call's end is noted when its data are there."""
        last = result[-1] if isinstance(result, list | tuple) else result
        if isinstance(last, torch.Tensor):  # functional: waited for by ``wait_tensor``
            results = result if isinstance(result, list | tuple) else [result]
            for tensor in results:
                self._open.by_storage[tensor.untyped_storage()._cdata] = call
            return
        handle = last if isinstance(last, WorkHandle) else WorkHandle.unbox(last)
        call.handle = handle
        try:
            handle.get_future().add_done_callback(lambda _: self._end(call))
        except RuntimeError:  # a send, a receive, Gloo's reduce-scatter: they have none
            self._open.by_handle[id(handle)] = call

    def _waited(self, handle: WorkHandle) -> None:
        if call := self._open.by_handle.pop(id(handle), None):
            self._end(call)

    def _end_by_storage(self, args: Sequence[object], end_s: float) -> None:
        for tensor in args:
            if isinstance(tensor, torch.Tensor):
                call = self._open.by_storage.pop(tensor.untyped_storage()._cdata, None)
                if call is not None:
                    call.end_s = end_s

    def _end(self, call: _Pending) -> None:
        call.end_s = max(call.end_s, self._now())

    def _entered(self) -> float:
        """Now, as an operation begins: what the host did since the last one is a gap."""
        now_s = self._now()
        self._between.end(now_s)
        return now_s

    def _left(self) -> float:
        """Now, as an operation has returned."""
        now_s = self._now()
        self._between.begin(now_s)
        return now_s

    def _now(self) -> float:
        return self._epoch_s + time.perf_counter()


class _Waits:
    """While entered, calls ``on_wait(handle)`` after each wait for a communication from Python."""

    def __init__(self, on_wait: Any) -> None:
        self._on_wait = on_wait

    def __enter__(self) -> None:
        original = self._original = WorkHandle.wait
        on_wait = self._on_wait

        def wait(handle: WorkHandle, *args: Any, **kwargs: Any) -> bool:
            result = original(handle, *args, **kwargs)
            on_wait(handle)
            return result

        WorkHandle.wait = wait  # type: ignore[method-assign, assignment]

    def __exit__(self, *_: object) -> None:
        WorkHandle.wait = self._original  # type: ignore[method-assign]
