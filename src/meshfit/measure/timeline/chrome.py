"""The timeline of a run in Chrome's trace format, for Perfetto (ui.perfetto.dev)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshfit.measure.intervals import Interval
from meshfit.measure.timeline.spans import Call, StepTrace

PHASES, STEPS, COMPUTE, INPUT = range(4)
_LANES = {PHASES: "phases", STEPS: "steps", COMPUTE: "computation", INPUT: "input"}

Event = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RankTimeline:
    """What one rank did over a whole run, in seconds since the epoch.

    Attributes:
        phases: name -> when it ran.
        steps: the timed steps, of which the first is number ``first_step``.
        traces: the profiled steps, with all that happened in them.
    """

    rank: int
    host: str
    phases: Mapping[str, Interval]
    steps: Sequence[Interval]
    traces: Sequence[StepTrace] = ()
    first_step: int = 0


def chrome_trace(ranks: Sequence[RankTimeline]) -> dict[str, Any]:
    """A process for each rank, with threads for phases, steps, computation and input.

    Communication is in asynchronous tracks (it overlaps), one a kind and axis. Time starts with the
    first phase of any rank.
    """
    start_s = min((begin for one in ranks for begin, _ in one.phases.values()), default=0.0)
    events = [event for one in ranks for event in _events(one, start_s)]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _events(one: RankTimeline, start_s: float) -> Iterator[Event]:
    yield _named("process_name", one.rank, 0, f"rank {one.rank} on {one.host}")
    for lane, name in _LANES.items():
        yield _named("thread_name", one.rank, lane, name)
    for lane, name, span, arguments in _spans(one):
        yield {
            "ph": "X",
            "name": name,
            "pid": one.rank,
            "tid": lane,
            "ts": 1e6 * (span[0] - start_s),
            "dur": 1e6 * (span[1] - span[0]),
            "args": arguments,
        }
    for number, call in enumerate(call for trace in one.traces for call in trace.calls):
        yield from _call(one.rank, number, call, start_s)


def _spans(one: RankTimeline) -> Iterator[tuple[int, str, Interval, Event]]:
    for name, span in one.phases.items():
        yield PHASES, name, span, {}
    for number, span in enumerate(one.steps, start=one.first_step):
        yield STEPS, f"step {number}", span, {}
    for trace in one.traces:
        yield STEPS, "profiled step", (trace.begin_s, trace.end_s), {}
        for waited in trace.input_waits:
            yield INPUT, "input wait", waited, {}
        for made in trace.computations:
            yield COMPUTE, made.name, (made.begin_s, made.end_s), {"work": made.work}


def _call(rank: int, number: int, call: Call, start_s: float) -> Iterator[Event]:
    track = {
        "cat": "communication",
        "name": f"{call.collective}.{call.axis}",
        "id": f"{rank}.{number}",
        "pid": rank,
        "tid": COMPUTE,
    }
    details: Event = {"ranks": list(call.ranks), "bytes": call.size_bytes}
    if call.source is not None:
        details |= {"source": call.source, "target": call.target}
    yield {**track, "ph": "b", "ts": 1e6 * (call.begin_s - start_s), "args": details}
    yield {**track, "ph": "e", "ts": 1e6 * (call.end_s - start_s)}


def _named(what: str, rank: int, lane: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": rank, "tid": lane, "args": {"name": name}}
