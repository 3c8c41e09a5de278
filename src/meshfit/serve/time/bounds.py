"""What steps of a replica wait for: arithmetic, memory, links or the host."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from meshfit.serve.asked.traffic import TrafficSpec
from meshfit.serve.time.clock import ReplicaClock
from meshfit.serve.time.step_time import StepLoad, chunk_pairs

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Shares of a step's seconds by what it waits for; ``host`` with launches of kernels."""

    compute: float
    memory: float
    communication: float
    host: float

    @property
    def name(self) -> str:
        """The largest: ``compute``, ``memory bandwidth``, ``interconnect`` or ``host``."""
        named = {
            "compute": self.compute,
            "memory bandwidth": self.memory,
            "interconnect": self.communication,
            "host": self.host,
        }
        return max(named, key=lambda key: named[key])


@dataclass(frozen=True, kw_only=True)
class StepTerms:
    """Seconds of several steps through all stages, by what they wait for."""

    compute: FloatArray
    memory: FloatArray
    communication: FloatArray
    host: FloatArray

    @property
    def total(self) -> FloatArray:
        return self.compute + self.memory + self.communication + self.host

    def bounds(self, index: float) -> Bounds:
        """Of one step, or of one between two of them."""
        at = np.arange(len(self.host), dtype=np.float64)
        seconds = {f.name: float(np.interp(index, at, getattr(self, f.name))) for f in fields(self)}
        total = sum(seconds.values())
        return Bounds(**{name: value / total for name, value in seconds.items()})


def step_terms(clock: ReplicaClock, steps: StepLoad) -> StepTerms:
    """The terms of ``steps``, which are arrays; their total is ``clock.step_s``."""
    times, host_s = clock.stage_times(steps), clock.host_s(steps)
    compute, memory, communication, launches = (
        np.sum([getattr(time, name) for time in times], axis=0)
        for name in ("compute", "memory", "communication", "launches")
    )
    return StepTerms(
        compute=compute, memory=memory, communication=communication, host=launches + host_s
    )


def phase_bounds(
    clock: ReplicaClock, traffic: TrafficSpec, in_flight: float
) -> tuple[Bounds, Bounds]:
    """Of a prompt of usual length alone, and of a step that only decodes ``in_flight`` requests that
    are half done."""
    prompt = traffic.prompt.mean_tokens
    context = prompt + traffic.output.mean_tokens / 2
    is_prompt, decoding = np.array([1.0, 0.0]), np.array([0.0, in_flight])
    terms = step_terms(
        clock,
        StepLoad(
            prefill_tokens=is_prompt * prompt,
            prefill_requests=is_prompt,
            prefill_pairs=is_prompt * chunk_pairs(prompt, 0.0),
            completed_prefills=is_prompt,
            decode_requests=decoding,
            decode_context_tokens=decoding * context,
        ),
    )
    return terms.bounds(0), terms.bounds(1)
