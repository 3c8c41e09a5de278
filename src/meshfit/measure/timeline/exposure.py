"""Where the time of a profiled step went, by interval algebra over the spans of all its ranks.

Exposed is what of a communication no computation of the same rank covers (the definition of
HolisticTraceAnalysis, ``communication_analysis.py``). A moment in which several communications are
under way counts once, for the one that began first; so the terms add up to the step.

A rank that has made a call for communication which another has still to join waits for that rank,
not for the network. Along the pipeline that wait is the bubble. Along other axes it stays part of
the exposed time, as any profiler of one rank shows it; ``waiting_s`` tells how much of it there is.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence

from meshfit.breakdown import TimeBreakdown
from meshfit.measure.intervals import Interval, clip, seconds, subtract, union
from meshfit.measure.timeline.axes import WORLD
from meshfit.measure.timeline.spans import Call, HostGap, StepTrace
from meshfit.record.schema import StepProfile

PIPELINE_AXES = ("pp", WORLD)
"""Axes of groups whose ranks can be of several pipeline stages."""


def profiles(traces: Sequence[StepTrace], *, is_pipeline: bool) -> list[StepProfile]:
    """The profile of every rank of one step, in the order of ``traces``.

    ``is_pipeline``: whether ranks hold different stages, so that waiting for others is a bubble.
    """
    joined = _last_to_join(traces)
    return [_profile(trace, joined, is_pipeline) for trace in traces]


def _profile(trace: StepTrace, joined: Mapping[Hashable, float], is_pipeline: bool) -> StepProfile:
    step = [(trace.begin_s, trace.end_s)]
    by_work = {
        work: union((c.begin_s, c.end_s) for c in trace.computations if c.work == work)
        for work in ("compute", "recompute", "optimizer")
    }
    computing = union(span for spans in by_work.values() for span in spans)
    input_wait = subtract(union(trace.input_waits), computing)
    under_way = clip(
        union((call.begin_s, call.end_s) for call in trace.calls), trace.begin_s, trace.end_s
    )
    exposed: defaultdict[str, float] = defaultdict(float)
    bubble_s = waiting_s = 0.0
    for call, key, alone in _alone(trace, union([*computing, *input_wait])):
        waited_s = seconds(clip(alone, trace.begin_s, joined[key]))
        waiting_s += waited_s
        if is_pipeline and call.axis in PIPELINE_AXES:
            bubble_s += waited_s
            waited_s = 0.0
        rest_s = seconds(clip(alone, joined[key], trace.end_s))
        exposed[f"{call.collective}.{call.axis}"] += waited_s + rest_s
    busy = union([*computing, *input_wait, *under_way])
    free = subtract(step, busy)
    host_s, core_wait_s = _host(trace.gaps, free)
    terms = {
        work: seconds(clip(spans, trace.begin_s, trace.end_s)) for work, spans in by_work.items()
    }
    return StepProfile(
        time=TimeBreakdown(
            **terms,
            bubble=bubble_s if is_pipeline else None,
            input_wait=seconds(input_wait),
            other=seconds(free),
            exposed=dict(sorted(exposed.items())),
        ),
        waiting_s=waiting_s,
        communication_s=seconds(under_way),
        host_s=host_s,
        core_wait_s=core_wait_s,
    )


def _host(gaps: Sequence[HostGap], free: Sequence[Interval]) -> tuple[float | None, float | None]:
    """Seconds that the thread ran, and that it waited for a core, in moments that nothing else fills.

    Of a gap that is partly filled (by a transfer under way, by waiting for input) that share of both
    counts. None where there are no gaps; the second also where the kernel did not count it.
    """
    if not gaps:
        return None, None
    shares = [
        seconds(clip(free, gap.begin_s, gap.end_s)) / (gap.end_s - gap.begin_s) for gap in gaps
    ]
    running_s = sum(share * gap.running_s for share, gap in zip(shares, gaps, strict=True))
    waits_s = [gap.core_wait_s for gap in gaps if gap.core_wait_s is not None]
    if len(waits_s) < len(gaps):
        return running_s, None
    return running_s, sum(share * wait for share, wait in zip(shares, waits_s, strict=True))


def _alone(
    trace: StepTrace, busy: Sequence[Interval]
) -> Iterator[tuple[Call, Hashable, list[Interval]]]:
    """Each call with the moments of the step that only it fills: no computation, no earlier call."""
    free = subtract([(trace.begin_s, trace.end_s)], busy)
    taken_until_s = trace.begin_s
    for call, key in sorted(_numbered(trace.calls), key=lambda item: item[0].begin_s):
        # What began earlier and still runs covers all moments from here to its end.
        yield call, key, clip(free, max(call.begin_s, taken_until_s), call.end_s)
        taken_until_s = max(taken_until_s, call.end_s)


def _last_to_join(traces: Sequence[StepTrace]) -> dict[Hashable, float]:
    """Identity of a communication -> when the last of its ranks made its call."""
    last: dict[Hashable, float] = {}
    for trace in traces:
        for call, key in _numbered(trace.calls):
            last[key] = max(last.get(key, call.begin_s), call.begin_s)
    return last


def _numbered(calls: Sequence[Call]) -> Iterator[tuple[Call, Hashable]]:
    """Each call with what identifies the communication on all of its ranks.

    The n-th collective of a group is the same one on each of its ranks, as is the n-th message
    between two ranks.
    """
    counts: Counter[Hashable] = Counter()
    for call in calls:
        lane = (call.group, call.ranks, call.source, call.target)
        counts[lane] += 1
        yield call, (lane, counts[lane])
