"""A timeline as Chrome's trace format, for Perfetto (ui.perfetto.dev) or chrome://tracing."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from meshfit.predict.shape.schedules.action import KINDS
from meshfit.predict.shape.schedules.waves import FORWARD, WEIGHT
from meshfit.predict.simulate.critical_path import critical_path
from meshfit.predict.simulate.stage import StageCost
from meshfit.predict.simulate.streams import Span
from meshfit.predict.simulate.timeline import AFTER_NORM, Timeline

COMPUTE, SHARDING, PIPELINE = range(3)
LANES = {COMPUTE: "compute", SHARDING: "dp_shard collectives", PIPELINE: "pp sends"}
NAMES = dict(
    zip(KINDS, ("forward", "backward", "backward of inputs", "backward of weights"), strict=True)
)

Event = dict[str, Any]


def chrome_trace(timeline: Timeline, index: int) -> dict[str, Any]:
    """One layout of a timeline: a process for every pipeline rank, a thread for each of its lanes.

    Every action has its terms in ``args`` (milliseconds) and whether it is on the critical path.
    """
    events = [
        *_names(timeline),
        *_actions(timeline, index),
        *_layers(timeline, index),
        *_scatters(timeline, index),
        *_sends(timeline, index),
        *_endings(timeline, index),
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _names(timeline: Timeline) -> Iterator[Event]:
    for rank in range(timeline.group.pipeline.pp):
        named = {"name": f"pipeline rank {rank}"}
        yield {"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": named}
        for lane, name in LANES.items():
            yield {
                "ph": "M",
                "name": "thread_name",
                "pid": rank,
                "tid": lane,
                "args": {"name": name},
            }


def _event(rank: int, lane: int, name: str, start_s: float, end_s: float, **args: Any) -> Event:
    return {
        "ph": "X",
        "name": name,
        "pid": rank,
        "tid": lane,
        "ts": start_s * 1e6,
        "dur": (end_s - start_s) * 1e6,
        "args": args,
    }


def _actions(timeline: Timeline, index: int) -> Iterator[Event]:
    waves, played = timeline.waves, timeline.played
    critical = {(one.what, one.stage, one.micro_batch) for one in critical_path(timeline, index)}
    for action in range(len(waves)):
        kind, stage = KINDS[waves.kind[action]], int(waves.stage[action])
        number = int(waves.micro_batch[action])
        yield _event(
            int(waves.rank[action]),
            COMPUTE,
            f"{NAMES[kind]} {number} of stage {stage}",
            float(played.start[action, index]),
            float(played.finish[action, index]),
            micro_batch=number,
            stage=stage,
            critical=(kind, stage, number) in critical,
            milliseconds=_milliseconds(timeline.stages[stage], int(waves.kind[action]), index),
        )


def _milliseconds(stage: StageCost, kind: int, index: int) -> dict[str, float]:
    """Terms of one usual action of this kind."""
    if kind == WEIGHT:
        return {"compute": 1e3 * float(stage.weight[index])}
    terms = stage.forward if kind == FORWARD else stage.backward
    return {name: 1e3 * float(t[index]) for name, t in terms.items() if t[index] > 0}


def _layers(timeline: Timeline, index: int) -> Iterator[Event]:
    """Gathers and scatters of every layer, beside the pass that they belong to."""
    waves, played = timeline.waves, timeline.played
    for action in range(len(waves)):
        stage = timeline.stages[waves.stage[action]]
        is_forward = waves.kind[action] == FORWARD
        streams = stage.forward_streams if is_forward else stage.backward_streams
        once = any(float(seconds[index]) > 0 for seconds in stage.first.values())
        repeats = not (is_forward and once) or waves.is_first[action]
        if streams is None or waves.kind[action] == WEIGHT or not repeats:
            continue
        passed = max(float(span.end[index]) for span in streams.compute)
        offset = float(played.finish[action, index]) - passed - float(streams.reduce_wait[index])
        for name, spans in (("all_gather", streams.gathers), ("reduce_scatter", streams.reduces)):
            yield from _spans(int(waves.rank[action]), name, spans, offset, index)


def _scatters(timeline: Timeline, index: int) -> Iterator[Event]:
    """Scatters of gradients that were whole until a stage's last backward."""
    waves, finish = timeline.waves, timeline.played.finish
    for action in np.flatnonzero(timeline.scatters[:, index] > 0):
        start = float(finish[action, index])
        end = start + float(timeline.scatters[action, index])
        name = f"reduce_scatter of stage {int(waves.stage[action])}"
        yield _event(int(waves.rank[action]), SHARDING, name, start, end)


def _spans(rank: int, name: str, spans: list[Span], offset: float, index: int) -> Iterator[Event]:
    for number, span in enumerate(spans):
        start, end = float(span.start[index]), float(span.end[index])
        if end > start:
            yield _event(rank, SHARDING, f"{name} {number}", offset + start, offset + end)


def _sends(timeline: Timeline, index: int) -> Iterator[Event]:
    waves, played = timeline.waves, timeline.played
    for action in np.flatnonzero(waves.crosses):
        source = int(waves.source[action])
        sent = float(played.finish[source, index])
        name = f"send {int(waves.micro_batch[source])} to stage {int(waves.stage[action])}"
        seconds = float(timeline.transfer[action, index])
        yield _event(int(waves.rank[source]), PIPELINE, name, sent, sent + seconds)


def _endings(timeline: Timeline, index: int) -> Iterator[Event]:
    norm_at = np.broadcast_to(timeline.norm_at, timeline.ends.shape)[:, index]
    for rank, tail in enumerate(timeline.tails):
        before, after = float(timeline.ends[rank, index]), float(norm_at[rank])
        for name, seconds in tail.items():
            taken = float(seconds[index])
            start = after if name in AFTER_NORM else before
            if taken > 0:
                yield _event(rank, COMPUTE, name, start, start + taken)
            if name in AFTER_NORM:
                after += taken
            else:
                before += taken
