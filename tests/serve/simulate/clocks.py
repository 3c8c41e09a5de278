"""Clocks and requests that tests can compute with by hand."""

from dataclasses import dataclass

import numpy as np

from meshfit.serve.setting.scheduler import SchedulerSpec
from meshfit.serve.simulate.pools import Pool
from meshfit.serve.simulate.request import Request
from meshfit.serve.simulate.step_table import StepTable
from meshfit.serve.time.step_time import FloatArray, StepLoad

LONGEST = 4096


@dataclass(frozen=True)
class LinearClock:
    """``start + per_token x tokens + per_pair x pairs + per_cached x cached``."""

    start_s: float = 10e-3
    per_token_s: float = 0.1e-3
    per_pair_s: float = 0.0
    per_cached_s: float = 0.0
    stages: int = 1
    request_s: float = 0.0

    def step_s(self, load: StepLoad) -> FloatArray:
        decoded = np.asarray(load.decode_requests) * load.tokens_per_request
        return np.asarray(
            self.start_s
            + self.per_token_s * (np.asarray(load.prefill_tokens) + decoded)
            + self.per_pair_s * np.asarray(load.prefill_pairs)
            + self.per_cached_s * np.asarray(load.decode_context_tokens)
        )

    def interval_s(self, load: StepLoad) -> FloatArray:
        return self.step_s(load) / self.stages


def scheduler(**changes: int | bool) -> SchedulerSpec:
    """A small replica."""
    settings = {"max_sequences": 4, "token_budget": 512, "kv_capacity_tokens": 16 * 256}
    return SchedulerSpec(**(settings | changes))


def pool(
    spec: SchedulerSpec,
    clock: LinearClock | None = None,
    *,
    replicas: int = 1,
    policy="round_robin",
) -> Pool:
    """Replicas with the clock tabulated."""
    table = StepTable(clock or LinearClock(), spec, max_context_tokens=LONGEST)
    return Pool(replicas=replicas, scheduler=spec, table=table, policy=policy)


def request(number: int = 0, arrival_s: float = 0.0, prompt: int = 100, output: int = 10, **more):
    """One that reaches a replica as it is sent."""
    return Request(
        number=number,
        arrival_s=arrival_s,
        ready_s=arrival_s,
        prompt_tokens=prompt,
        output_tokens=output,
        decode_steps=output - 1,
        **more,
    )
