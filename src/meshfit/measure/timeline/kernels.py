"""A recorded step on a CUDA device: spans of kernels instead of calls, as ``torch.profiler`` has them.

Kineto draws a host label also on the device, over the kernels that were launched inside it: so the
label the recorder puts around the n-th call gives that call's time on the device.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from meshfit.measure.timeline.recorder import LABEL
from meshfit.measure.timeline.spans import Computation, StepTrace


class DeviceEvent(Protocol):
    """What is used of Kineto's events."""

    def name(self) -> str: ...
    def start_ns(self) -> int: ...
    def duration_ns(self) -> int: ...
    def is_user_annotation(self) -> bool: ...


def on_device(trace: StepTrace, events: Iterable[DeviceEvent]) -> StepTrace:
    """``trace`` with the device's times; ``events`` are those of the device alone.

    A call whose label the device does not show (a send of no bytes) is left out. All kernels but
    those of calls count as ``compute``: which of them belong to the optimizer or to a recompute,
    the device does not know. What the host did between its calls says nothing about the device's gaps.
    """
    spans, computations = {}, []
    for event in events:
        begin_s = event.start_ns() / 1e9
        end_s = begin_s + event.duration_ns() / 1e9
        if event.name().startswith(LABEL):
            spans[int(event.name().removeprefix(LABEL))] = (begin_s, end_s)
        elif not event.is_user_annotation() and not event.name().startswith("nccl"):
            computations.append(
                Computation(name=event.name(), work="compute", begin_s=begin_s, end_s=end_s)
            )
    last_s = [c.end_s for c in computations] + [end_s for _, end_s in spans.values()]
    return replace(
        trace,
        end_s=max([trace.end_s, *last_s]),
        computations=tuple(computations),
        calls=tuple(
            replace(call, begin_s=spans[number][0], end_s=spans[number][1])
            for number, call in enumerate(trace.calls)
            if number in spans
        ),
        gaps=(),
    )
