"""What a replica does once it runs steadily: latencies and throughput by the requests in flight.

Closed form, for tables of many layouts; ``meshfit serve simulate`` follows requests one by one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.serve.time.clock import ReplicaClock
from meshfit.serve.time.step_time import StepLoad, chunk_pairs

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SteadyState:
    """One replica with so many requests in flight; arrays of one shape.

    Attributes:
        in_flight: requests that are computed at once; others wait for their turn.
        decode_s: a step that only decodes; ``mixed_s``: one with a chunk of a prompt in it.
        prompt_s: what one prompt adds to the steps it is computed in.
        tpot_s: mean over requests; ``ttft_s``: too, once a request has its turn and others come as
            others end.
        waiting_s: for a turn, where more requests are sent than are computed at once.
        burst_s: a first token's mean time where all requests are sent at once.
        requests_per_s: that end.
    """

    in_flight: FloatArray
    decode_s: FloatArray
    mixed_s: FloatArray
    prompt_s: FloatArray
    tpot_s: FloatArray
    ttft_s: FloatArray
    waiting_s: FloatArray
    burst_s: FloatArray
    requests_per_s: FloatArray


def steady_state(
    clock: ReplicaClock,
    *,
    concurrency: FloatArray | float,
    capacity: FloatArray | float,
    prompt_tokens: FloatArray | float,
    output_tokens: FloatArray | float,
    step_tokens: int,
) -> SteadyState:
    """One replica with ``concurrency`` requests sent and never more, each sent as another ends.

    While ``n`` requests decode ``O`` tokens each, as many prompts are computed, in steps that decode
    as well: ``tpot = decode + interference x n / O x prompt``. A first token takes the steps of its
    own prompt and of those under way when it comes (``own``), and a few decoding ones between
    client and scheduler (``waited``); where groups share attention out, an engine holds prompts back
    until all groups have some (``balanced``). ``pace`` is that of a release's tokens over the engine's
    others, drafts that it checks included; ``start`` that of its first tokens. In a pipeline as many micro-batches as stages are under way,
    each with its part of the requests: a token takes one of them all the way through, and another
    one's prompt holds up a stage.

    Args:
        capacity: requests whose KV cache fits; the others wait.
        step_tokens: token budget of a step.
    """
    sent, most, prompt, output = np.broadcast_arrays(
        *(
            np.asarray(value, dtype=np.float64)
            for value in (concurrency, capacity, prompt_tokens, output_tokens)
        )
    )
    in_flight = np.clip(sent, 1.0, np.maximum(most, 1.0))
    chunks = np.ceil(prompt / step_tokens)
    together = np.clip(np.floor(step_tokens / prompt), 1.0, in_flight)
    none = np.zeros_like(in_flight)
    stages = clock.layout.pp
    decoding = np.maximum(in_flight / stages, 1.0)
    decode_s, mixed_s, batch_s = clock.step_s(
        _steps(
            prompts=np.stack([none, none + 1, together]),
            decoding=np.stack([decoding, decoding, none]),
            chunk=prompt / chunks,
            pairs=chunk_pairs(prompt, 0.0) / chunks,
            context=prompt + output / 2,
        )
    )
    prompt_s = chunks * (mixed_s - decode_s)
    shared_s = clock.of_engine("interference") * in_flight / output * prompt_s / stages
    tpot_s = clock.pace * (decode_s + shared_s)
    own_s = clock.of_engine("own") * chunks * mixed_s
    start = clock.of_engine("start")
    ttft_s = start * (clock.request_s + waiting_steps(clock) * decode_s + own_s)
    service_s = ttft_s + (output - 1) * tpot_s
    return SteadyState(
        in_flight=in_flight,
        decode_s=decode_s,
        mixed_s=mixed_s,
        prompt_s=prompt_s,
        tpot_s=tpot_s,
        ttft_s=ttft_s,
        waiting_s=np.maximum(sent / in_flight - 1, 0.0) * service_s,
        burst_s=start * batch_s * (in_flight / together * chunks + 1) / 2,
        requests_per_s=in_flight / service_s,
    )


def benchmark_ttft_s(clock: ReplicaClock, steady: SteadyState) -> FloatArray:
    """Mean time to first token that a closed-loop benchmark prints, in which a share of the requests
    (``burst``) is sent with all others at once when it starts."""
    return np.asarray(steady.ttft_s + steady.waiting_s + clock.of_engine("burst") * steady.burst_s)


def waiting_steps(clock: ReplicaClock) -> float:
    """Decoding steps between send and first token."""
    waited = clock.of_engine("waited")
    if clock.layout.attention_dp > 1:
        waited += clock.of_engine("balanced")
    return waited


def _steps(
    *,
    prompts: FloatArray,
    decoding: FloatArray,
    chunk: FloatArray,
    pairs: FloatArray,
    context: FloatArray,
) -> StepLoad:
    """Steps with so many prompts' chunks and so many decoding requests, [kinds of steps, N]."""
    return StepLoad(
        prefill_tokens=prompts * chunk,
        prefill_requests=prompts,
        prefill_pairs=prompts * pairs,
        completed_prefills=prompts,
        decode_requests=decoding,
        decode_context_tokens=decoding * context,
    )
