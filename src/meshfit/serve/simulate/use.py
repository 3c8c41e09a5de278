"""How the replicas of a pool were used: time in which they computed, and their KV caches."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.serve.asked.latencies import Gaps
from meshfit.serve.setting.scheduler import SchedulerSpec
from meshfit.serve.simulate.replica import Replica
from meshfit.serve.simulate.step_log import StepColumns, columns
from meshfit.serve.simulate.window import Window

_MOMENTS = 60
"""In the course of the KV cache."""


@dataclass(frozen=True, kw_only=True)
class PoolUse:
    """Of one pool, in the window that is looked at.

    Attributes:
        busy_fraction: share of time in which its replicas computed.
        kv_mean_fraction, kv_peak_fraction: of the KV caches, over time and of the fullest replica.
        kv_over_time: seconds since the first arrival, mean share of the caches that is held.
        most_waiting: in one replica's queue.
    """

    busy_fraction: float
    kv_mean_fraction: float
    kv_peak_fraction: float
    kv_over_time: tuple[tuple[float, float], ...]
    most_waiting: int


def pool_use(replicas: Sequence[Replica], scheduler: SchedulerSpec, window: Window) -> PoolUse:
    """How ``replicas`` were used."""
    steps = [columns(replica.entries) for replica in replicas]
    capacity = scheduler.capacity_blocks * scheduler.block_tokens
    moments_s = np.linspace(window.begins_s, window.ends_s, _MOMENTS)
    held = np.array([_held_at(one, moments_s) for one in steps]) / capacity
    inside = [one.within(window) for one in steps]
    return PoolUse(
        busy_fraction=float(np.mean([_busy_s(one, window) for one in steps]) / window.seconds),
        kv_mean_fraction=float(held.mean()),
        kv_peak_fraction=max(float(one.kv_tokens.max(initial=0)) for one in inside) / capacity,
        kv_over_time=tuple(zip(moments_s.tolist(), held.mean(axis=0).tolist(), strict=True)),
        most_waiting=max(int(one.waiting.max(initial=0)) for one in inside),
    )


def gaps_in(replicas: Sequence[Replica], window: Window) -> Gaps:
    """The gaps between tokens that ended in the window."""
    inside = [columns(replica.entries).within(window) for replica in replicas]
    waits_s = [gap.seconds for one in replicas for gap in one.gaps if window.holds(gap.ends_s)]
    seconds = np.concatenate([*(one.step_s for one in inside), np.array(waits_s)])
    counts = np.concatenate([*(one.steps * one.decoding for one in inside), np.ones(len(waits_s))])
    shown = counts > 0
    return Gaps(seconds=seconds[shown], counts=counts[shown])


def _held_at(steps: StepColumns, moments_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Tokens in the KV cache at each moment: those at the last end of steps before it."""
    before = np.searchsorted(steps.ends_s, moments_s, side="right")
    return np.concatenate([[0.0], steps.kv_tokens])[before]


def _busy_s(steps: StepColumns, window: Window) -> float:
    """Seconds of the window in which a replica computed."""
    begins_s = np.maximum(steps.begins_s, np.concatenate([[0.0], steps.ends_s[:-1]]))
    inside_s = np.minimum(steps.ends_s, window.ends_s) - np.maximum(begins_s, window.begins_s)
    return float(np.maximum(inside_s, 0.0).sum())
