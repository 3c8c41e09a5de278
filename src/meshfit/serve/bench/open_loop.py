"""An open-loop client: every request is sent when it is due, whatever the servers do meanwhile."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshfit.record.serving import ServedRequest
from meshfit.serve.bench.http import async_client, streamed_completion
from meshfit.serve.servers.running import RunningServer
from meshfit.serve.simulate.request import Request

CLIENT = "meshfit's open-loop client (asyncio, httpx2)"
ROUTER = "round robin over replicas, by the client"


def prompts_of(requests: Sequence[Request], *, vocab_size: int, seed: int) -> list[list[int]]:
    """Random token ids of the lengths of ``requests``; leading segments that are shared are equal."""
    generator = np.random.default_rng((seed, len(requests)))
    segments: dict[object, list[int]] = {}
    prompts = []
    for request in requests:
        shared: list[int] = []
        for key in request.prefix:
            if key not in segments:
                segments[key] = _tokens(generator, request.segment_tokens, vocab_size)
            shared += segments[key]
        left = max(0, request.prompt_tokens - len(shared))
        own = _tokens(generator, left, vocab_size)
        prompts.append([*shared, *own][: request.prompt_tokens])
    return prompts


def drive(
    servers: Sequence[RunningServer],
    requests: Sequence[Request],
    prompts: Sequence[Sequence[int]],
    *,
    timeout_s: float,
) -> tuple[ServedRequest, ...]:
    """Sends every request at its ``arrival_s`` and waits for all of them; request ``i`` goes to server
    ``i mod n``. A failed request is a row with its reason."""
    return asyncio.run(_drive(servers, requests, prompts, timeout_s))


async def _drive(
    servers: Sequence[RunningServer],
    requests: Sequence[Request],
    prompts: Sequence[Sequence[int]],
    timeout_s: float,
) -> tuple[ServedRequest, ...]:
    async with async_client(timeout_s=timeout_s) as client:
        begins_s = time.perf_counter()
        sent = []
        for request, prompt in zip(requests, prompts, strict=True):
            await asyncio.sleep(max(0.0, begins_s + request.arrival_s - time.perf_counter()))
            server = servers[request.number % len(servers)]
            sent.append(asyncio.create_task(_send(client, server, request, prompt, begins_s)))
        return tuple(await asyncio.gather(*sent))


async def _send(
    client: Any,
    server: RunningServer,
    request: Request,
    prompt: Sequence[int],
    begins_s: float,
) -> ServedRequest:
    sent_s = time.perf_counter()
    arrived_s: list[float] = []
    tokens, error = 0, ""
    try:
        events = streamed_completion(
            client, server.url, server.model, prompt, max_tokens=request.output_tokens
        )
        async for event in events:
            arrived_s.append(event.at_s)
            tokens += event.tokens
    except ConnectionError as problem:
        error = str(problem)
    if not error and not arrived_s:
        error = "the stream ended without a token"
    return ServedRequest(
        number=request.number,
        prompt_tokens=request.prompt_tokens,
        output_tokens=tokens,
        planned_s=request.arrival_s,
        sent_s=sent_s - begins_s,
        first_token_s=None if error else arrived_s[0] - begins_s,
        finished_s=None if error else arrived_s[-1] - begins_s,
        gaps_s=tuple(np.diff(arrived_s).tolist()),
        error=error,
    )


def _tokens(generator: np.random.Generator, count: int, vocab_size: int) -> list[int]:
    drawn: list[int] = generator.integers(0, vocab_size, count).tolist()
    return drawn
