"""From what is said of traffic to single requests, drawn with a seed."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.errors import InputError
from meshfit.serve.asked.speculation import SpeculationSpec
from meshfit.serve.asked.traffic import LengthSpec, TrafficSpec
from meshfit.serve.simulate.request import Request, SegmentKey
from meshfit.serve.simulate.trace import TracedRequest, read_trace

_SYSTEM_PROMPT = "shared prefix"


@dataclass(frozen=True, kw_only=True)
class Draw:
    """How requests are drawn.

    Attributes:
        requests: how many; a trace gives its first ones.
        longest_tokens: most tokens of prompt and output together; longer ones are cut there, the
            output first.
        request_s: seconds a request spends outside steps before a replica sees it.
        speculation: drafts, None without.
    """

    requests: int
    seed: int = 0
    longest_tokens: int
    request_s: float = 0.0
    speculation: SpeculationSpec | None = None


def draw_requests(traffic: TrafficSpec, draw: Draw) -> list[Request]:
    """Requests of all replicas in order of arrival; the same for the same seed. In a closed loop and
    without a rate all arrive at 0.

    Raises:
        InputError: the trace cannot be read.
    """
    generator = np.random.default_rng(draw.seed)
    if traffic.trace is not None:
        drawn = read_trace(traffic.trace)[: draw.requests]
    else:
        drawn = _drawn(traffic, draw.requests, generator)
    return [_request(one, number, draw, generator) for number, one in enumerate(drawn)]


def _drawn(traffic: TrafficSpec, count: int, generator: np.random.Generator) -> list[TracedRequest]:
    arrivals_s = _arrivals_s(traffic, count, generator).tolist()
    prompts = _lengths(traffic.prompt, count, generator)
    outputs = _lengths(traffic.output, count, generator)
    prefix_tokens = traffic.shared_prefix_tokens
    prefix: tuple[SegmentKey, ...] = (_SYSTEM_PROMPT,) if prefix_tokens else ()
    return [
        TracedRequest(
            arrival_s=arrival_s,
            prompt_tokens=max(prompt, prefix_tokens + 1),
            output_tokens=output,
            prefix=prefix,
            segment_tokens=prefix_tokens,
        )
        for arrival_s, prompt, output in zip(arrivals_s, prompts, outputs, strict=True)
    ]


def _arrivals_s(
    traffic: TrafficSpec, count: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Gaps between arrivals are equal, exponential, or gamma with the burstiness as their squared
    coefficient of variation."""
    if traffic.rate_per_s is None:
        return np.zeros(count)
    mean_s = 1 / traffic.rate_per_s
    match traffic.arrivals:
        case "constant":
            gaps = np.full(count, mean_s)
        case "bursts":
            variation = traffic.burstiness
            gaps = generator.gamma(1 / variation, mean_s * variation, count)
        case "poisson":
            gaps = generator.exponential(mean_s, count)
        case other:
            raise InputError(f"arrivals {other} take no rate; give poisson, bursts or constant")
    return np.cumsum(gaps)


def _lengths(lengths: LengthSpec, count: int, generator: np.random.Generator) -> list[int]:
    drawn = generator.lognormal(math.log(lengths.median_tokens), lengths.sigma, count)
    whole: list[int] = np.maximum(1, np.round(drawn)).astype(np.int64).tolist()
    return whole


def _request(
    drawn: TracedRequest, number: int, draw: Draw, generator: np.random.Generator
) -> Request:
    prompt = min(drawn.prompt_tokens, draw.longest_tokens - 1)
    output = min(drawn.output_tokens, draw.longest_tokens - prompt)
    speculation = draw.speculation
    return Request(
        number=number,
        arrival_s=drawn.arrival_s,
        ready_s=drawn.arrival_s + draw.request_s,
        prompt_tokens=prompt,
        output_tokens=output,
        decode_steps=output - 1
        if speculation is None
        else speculation.steps(output - 1, generator),
        priority=drawn.priority,
        prefix=drawn.prefix,
        segment_tokens=drawn.segment_tokens,
        is_cut=drawn.prompt_tokens + drawn.output_tokens > draw.longest_tokens,
    )
