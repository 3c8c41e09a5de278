"""Seconds of a step, from what engines print in their place."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from meshfit.engines.logs.form import Printed


@dataclass(frozen=True, kw_only=True)
class StatedStep:
    """A statement with the one before it of the same start (None: it is the first), and the number of
    steps from that one on."""

    printed: Printed
    previous: Printed | None
    num_steps: int


@dataclass(frozen=True, kw_only=True)
class StepSeconds:
    """Seconds of one step for each statement (None: it has none), and what they rest on; ``why_none``
    where there are none at all."""

    seconds: tuple[float | None, ...]
    words: str = ""
    why_none: str = ""


def step_seconds(statements: Sequence[StatedStep], job: Mapping[str, int]) -> StepSeconds:
    """By the most direct way that the statements allow, one way for all.

    Args:
        job: ``world_size``, ``global_batch_size`` and ``sequence_length``, those that are known.
    """
    for words, way in _WAYS.items():
        seconds = tuple(way(one, job) for one in statements)
        if any(one is not None for one in seconds):
            return StepSeconds(seconds=seconds, words=words)
    nothing: tuple[float | None, ...] = (None,) * len(statements)
    return StepSeconds(seconds=nothing, why_none=_why_none(statements, job))


def _as_printed(stated: StatedStep, _job: Mapping[str, int]) -> float | None:
    return stated.printed.step_s


def _by_samples(stated: StatedStep, job: Mapping[str, int]) -> float | None:
    batch = stated.printed.global_batch_size or job.get("global_batch_size")
    rate = stated.printed.samples_per_s
    return batch / rate if batch and rate else None


def _by_tokens(stated: StatedStep, job: Mapping[str, int]) -> float | None:
    rate = stated.printed.tokens_per_s_per_rank
    if not rate or not job.keys() >= _TOKENS:
        return None
    return job["global_batch_size"] * job["sequence_length"] / (rate * job["world_size"])


def _by_clock(stated: StatedStep, _job: Mapping[str, int]) -> float | None:
    now = stated.printed.clock_s
    before = stated.previous.clock_s if stated.previous else None
    if now is None or before is None or now <= before:
        return None
    return (now - before) / stated.num_steps


_TOKENS = {"world_size", "global_batch_size", "sequence_length"}
_WAYS: Mapping[str, Callable[[StatedStep, Mapping[str, int]], float | None]] = {
    "as the engine prints it": _as_printed,
    "sequences of a step over sequences a second of the job": _by_samples,
    "tokens of a step over tokens a second of all ranks": _by_tokens,
    "time between the lines of steps, whatever else happened in it": _by_clock,
}


def _why_none(statements: Sequence[StatedStep], job: Mapping[str, int]) -> str:
    if any(one.printed.tokens_per_s_per_rank for one in statements):
        missing = ", ".join(sorted(_TOKENS - job.keys()))
        return f"it has tokens a second, but neither times nor {missing}, which a job would say"
    if any(one.printed.samples_per_s for one in statements):
        return "it has sequences a second, but no global batch, which a job would say"
    return "it has neither times nor rates of steps"
