"""What a kind of log is: which lines say something, and what they say."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from meshfit.engines.logs.lines import Line


@dataclass(frozen=True, kw_only=True)
class Printed:
    """What one line states; None: nothing of it. Bytes, seconds, fractions.

    Attributes:
        step: that it is of; None: of none, such as a report of memory, or of one whose number is not
            printed (``is_unnumbered``).
        step_s: one step, the mean of those since the last line.
        samples_per_s: of the whole job; tokens_per_s_per_rank: of one rank.
        clock_s: when it was printed, on any clock.
        run_mean_step_s: one step, the mean of all of a run that has ended, the first one included.
        global_batch_size: sequences of this step.
        rank: global rank whose memory it is.
    """

    step: int | None = None
    is_unnumbered: bool = False
    step_s: float | None = None
    samples_per_s: float | None = None
    tokens_per_s_per_rank: float | None = None
    clock_s: float | None = None
    run_mean_step_s: float | None = None
    global_batch_size: int | None = None
    loss: float | None = None
    gradient_norm: float | None = None
    mfu: float | None = None
    flops_per_s: float | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    resident_bytes: int | None = None
    rank: int | None = None


@dataclass(frozen=True, kw_only=True)
class LogForm:
    """One kind of log.

    Attributes:
        engine: name of its profile; words: what it is called.
        opening: how the statement of a step begins; one that then ends otherwise than ``printed`` knows
            was cut, or another rank wrote into it.
        start: what is printed once when training begins or goes on, before its first step.
        printed: what a line states; often nothing. A line of several ranks may hold several.
        stated: what a line says of the job, in the words of ``EngineLog.stated``.
        version: with the engine's version as its group; None: it is not printed.
        clock_of_run: the lines' clock counts from the start of training, so that it times step 1, too.
        carries_first: the second statement of a start is a mean that has the first one in it.
        absent: figure -> why no log of this kind has it.
    """

    engine: str
    words: str
    opening: re.Pattern[str]
    start: re.Pattern[str]
    printed: Callable[[Line], Iterator[Printed]]
    stated: Callable[[str], Mapping[str, int]]
    version: re.Pattern[str] | None = None
    clock_of_run: bool = False
    carries_first: bool = False
    absent: Mapping[str, str] = field(default_factory=dict)


def number(text: str | None) -> float | None:
    """A number as engines print it, thousands apart by commas; None where there is none, or a word in its
    place (``null``, as some programs write what is not a number)."""
    try:
        return None if text is None else float(text.replace(",", ""))
    except ValueError:
        return None


def whole(text: str | None) -> int | None:
    """A whole number; None where there is none, or something else in its place."""
    return int(text) if text is not None and text.isdecimal() else None


def scaled(text: str | None, unit: int) -> int | None:
    """Bytes of a number in units of so many."""
    value = number(text)
    return None if value is None or not math.isfinite(value) else round(value * unit)


def clock_seconds(text: str) -> float:
    """Seconds of a time as ``logging`` writes it, ``2026-11-29 10:00:01,250``."""
    return datetime.fromisoformat(text.replace(",", ".")).replace(tzinfo=UTC).timestamp()
