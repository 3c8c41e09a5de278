"""What the profiler of a device says, held against calls the host recorded. No device needed."""

from dataclasses import dataclass

from meshfit.measure.timeline.kernels import on_device
from meshfit.measure.timeline.recorder import LABEL
from meshfit.measure.timeline.spans import Call, Computation, HostGap, StepTrace


@dataclass(frozen=True)
class Event:
    text: str
    start: int
    duration: int
    annotation: bool = False

    def name(self) -> str:
        return self.text

    def start_ns(self) -> int:
        return self.start

    def duration_ns(self) -> int:
        return self.duration

    def is_user_annotation(self) -> bool:
        return self.annotation


def host_trace() -> StepTrace:
    calls = tuple(
        Call(
            collective=collective,
            axis="dp_shard",
            group="0",
            ranks=(0, 1),
            begin_s=1.0,
            end_s=1.1,
            size_bytes=8,
        )
        for collective in ("all_gather", "reduce_scatter", "p2p")
    )
    host = Computation(name="aten.mm", work="compute", begin_s=1.0, end_s=1.01)
    between = HostGap(begin_s=1.1, end_s=2.0, running_s=0.5, core_wait_s=0.0)
    return StepTrace(
        rank=0,
        begin_s=1.0,
        end_s=2.0,
        computations=(host,),
        calls=calls,
        input_waits=(),
        gaps=(between,),
    )


def test_calls_get_the_times_of_their_labels_on_the_device() -> None:
    trace = on_device(
        host_trace(),
        [
            Event(f"{LABEL}1", 1_400_000_000, 300_000_000, annotation=True),
            Event(f"{LABEL}0", 1_000_000_000, 200_000_000, annotation=True),
            Event("ncclDevKernel_AllGather_RING_LL", 1_000_000_000, 200_000_000),
            Event("FSDP::all_gather", 1_000_000_000, 250_000_000, annotation=True),
            Event("gemm_bf16", 1_100_000_000, 1_000_000_000),
        ],
    )
    assert [(c.collective, c.begin_s, c.end_s) for c in trace.calls] == [
        ("all_gather", 1.0, 1.2),
        ("reduce_scatter", 1.4, 1.7),
    ]
    assert [c.name for c in trace.computations] == ["gemm_bf16"]
    assert trace.end_s == 2.1, "the device was busy longer than the host"


def test_gaps_of_the_host_are_no_gaps_of_the_device() -> None:
    assert on_device(host_trace(), []).gaps == ()
