"""One pass over the layers of a stage on two streams: computation, and what shards states.

A layer's gather hides under the layer before it, its scatter under the one after, each from the
moment in that layer's computation from which communication can hide (``overlap``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A layer (or the head) in one pass, for N layouts, in seconds.

    Attributes:
        compute: under which communication of other units can hide.
        exposed: its own collectives, which nothing hides.
        gather, reduce: of its parameters before it, of its gradients after it.
    """

    compute: FloatArray
    exposed: FloatArray
    gather: FloatArray
    reduce: FloatArray


@dataclass(frozen=True, kw_only=True)
class Span:
    """From when to when, in seconds after the start of the pass."""

    start: FloatArray
    end: FloatArray


@dataclass(frozen=True, kw_only=True)
class Streams:
    """Both streams of one pass; spans are in the order of its units.

    ``gather_wait`` and ``reduce_wait`` are the seconds that it takes longer for them.
    """

    compute: list[Span] = field(default_factory=list)
    gathers: list[Span] = field(default_factory=list)
    reduces: list[Span] = field(default_factory=list)
    gather_wait: FloatArray
    reduce_wait: FloatArray


def run_streams(units: Sequence[Unit], *, overlap: float, prefetched: int) -> Streams:
    """Play one pass.

    The link carries one collective at a time: what the next unit needs, then what is left of the
    unit before. It stands still in the part of each unit's computation that hides nothing.

    Args:
        units: in the order of the pass.
        overlap: share of a unit's computation under which communication can hide.
        prefetched: units whose parameters may be gathered ahead of the one in use, at least 1.
    """
    compute: list[Span] = []
    gathers: list[Span] = []
    reduces: list[Span] = []
    nothing = np.zeros_like(units[0].compute)
    now, link, gather_wait = nothing, nothing, nothing
    opens: list[FloatArray] = []
    for index, unit in enumerate(units):
        allowed = opens[index - prefetched] if index >= prefetched else nothing
        gathers.append(_carried(unit.gather, np.maximum(link, allowed)))
        link = _link_after(gathers[-1], link)
        if index >= 2:
            waiting = units[index - 2].reduce
            reduces.append(_carried(waiting, np.maximum(link, opens[index - 1])))
            link = _link_after(reduces[-1], link)
        start = np.where(unit.gather > 0, np.maximum(now, gathers[-1].end), now)
        gather_wait = gather_wait + (start - now)
        hides_nothing = (1 - overlap) * unit.compute + unit.exposed
        opens.append(start + hides_nothing)
        link = np.where(link > start, link + hides_nothing, link)
        now = start + unit.compute + unit.exposed
        compute.append(Span(start=start, end=now))
    for unit, ready in zip(units[-2:], [opens[-1], now][-len(units) :], strict=True):
        reduces.append(_carried(unit.reduce, np.maximum(link, ready)))
        link = _link_after(reduces[-1], link)
    return Streams(
        compute=compute,
        gathers=gathers,
        reduces=reduces,
        gather_wait=gather_wait,
        reduce_wait=np.maximum(link - now, 0.0),
    )


def _carried(seconds: FloatArray, start: FloatArray) -> Span:
    return Span(start=start, end=start + seconds)


def _link_after(span: Span, link: FloatArray) -> FloatArray:
    """When the link is free again; a collective of no length does not keep it."""
    return np.where(span.end > span.start, span.end, link)
