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
from statistics import fmean

from meshfit.breakdown import TIME_TERMS, TimeBreakdown
from meshfit.measure.intervals import Interval, clip, seconds, subtract, union
from meshfit.measure.timeline.axes import WORLD
from meshfit.measure.timeline.spans import Call, StepTrace
from meshfit.record.schema import StepProfile

PIPELINE_AXES = ("pp", WORLD)
"""Axes of groups whose ranks can be of several pipeline stages."""


def profiles(traces: Sequence[StepTrace], *, is_pipeline: bool) -> list[StepProfile]:
    """The profile of every rank of one step, in the order of ``traces``.

    ``is_pipeline``: whether ranks hold different stages, so that waiting for others is a bubble.
    """
    joined = _last_to_join(traces)
    return [_profile(trace, joined, is_pipeline) for trace in traces]


def mean_profile(steps: Sequence[StepProfile]) -> StepProfile:
    """The mean over several steps of one rank, term by term."""
    times = [step.time for step in steps]
    names = {name for time in times for name in time.exposed}
    return StepProfile(
        time=TimeBreakdown(
            **{name: _mean([getattr(time, name) for time in times]) for name in TIME_TERMS},
            exposed={
                name: fmean(t.exposed.get(name, 0.0) for t in times) for name in sorted(names)
            },
        ),
        waiting_s=fmean(step.waiting_s for step in steps),
        communication_s=fmean(step.communication_s for step in steps),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


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
    terms = {
        work: seconds(clip(spans, trace.begin_s, trace.end_s)) for work, spans in by_work.items()
    }
    return StepProfile(
        time=TimeBreakdown(
            **terms,
            bubble=bubble_s if is_pipeline else None,
            input_wait=seconds(input_wait),
            other=seconds(subtract(step, busy)),
            exposed=dict(sorted(exposed.items())),
        ),
        waiting_s=waiting_s,
        communication_s=seconds(under_way),
    )


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
