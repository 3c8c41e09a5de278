"""What the steps of a replica were, kept compactly: one entry a run of equal steps."""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshfit.serve.simulate.window import Window

Entry = tuple[float, float, float, int, float, int]
"""The values of ``StepColumns`` of one run of steps."""


class Gap(NamedTuple):
    """A gap between two tokens that was longer than a step, as its request waited in between."""

    ends_s: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class StepColumns:
    """Runs of steps of one replica, in order of time.

    Attributes:
        ends_s: when a run ended.
        step_s: seconds of each of its steps; with those for prompts in between, where decoding waits.
        steps: how many there were.
        decoding: requests that got a token in each of them, after one that they already had.
        kv_tokens: held in the KV cache at the end.
        waiting: requests in the queue at the end.
    """

    ends_s: NDArray[np.float64]
    step_s: NDArray[np.float64]
    steps: NDArray[np.float64]
    decoding: NDArray[np.float64]
    kv_tokens: NDArray[np.float64]
    waiting: NDArray[np.float64]

    @property
    def begins_s(self) -> NDArray[np.float64]:
        """When its first step began; before the end of another run where decoding waited."""
        return self.ends_s - self.step_s * self.steps

    def within(self, window: Window) -> "StepColumns":
        """The runs that ended in the window."""
        inside = (window.begins_s < self.ends_s) & (self.ends_s <= window.ends_s)
        kept: dict[str, Any] = {f.name: getattr(self, f.name)[inside] for f in fields(self)}
        return StepColumns(**kept)


def columns(entries: list[Entry]) -> StepColumns:
    """Entries of one replica as columns."""
    names = [field.name for field in fields(StepColumns)]
    table = np.array(entries, dtype=np.float64).reshape(-1, len(names))
    return StepColumns(**dict(zip(names, table.T, strict=True)))
