"""Prompts computed by one pool of replicas, output by another.

A request goes to a replica for prompts; its KV cache moves to a replica for output, which computes
the last token of the prompt again and so gives the first token (as vLLM's connectors do). Left out:
prefill replicas that are full until a cache has been fetched, and transfers that share a link.
"""

from collections.abc import Sequence

from meshfit.serve.simulate.fleet import serve_open_loop
from meshfit.serve.simulate.pools import TwoPools
from meshfit.serve.simulate.replica import Replica
from meshfit.serve.simulate.request import Request


def serve_disaggregated(
    requests: Sequence[Request], pools: TwoPools
) -> tuple[list[Replica], list[Replica]]:
    """Replicas of both pools after all ``requests`` have been served; they end in the second."""
    prompts = [_prompt_of(request) for request in requests]
    first = serve_open_loop(prompts, pools.prefill)
    moved = []
    for request, prompt in zip(requests, prompts, strict=True):
        if prompt.finished_s is None:
            request.refused = f"prefill pool: {prompt.refused}"
            continue
        request.reused_tokens = prompt.reused_tokens
        request.ready_s = prompt.finished_s + pools.transfer_s(request.prompt_tokens)
        request.is_transferred = True
        moved.append(request)
    moved.sort(key=lambda request: request.ready_s)
    return first, serve_open_loop(moved, pools.decode)


def _prompt_of(request: Request) -> Request:
    """The same request with nothing to do after its first token."""
    return Request(
        number=request.number,
        arrival_s=request.arrival_s,
        ready_s=request.ready_s,
        prompt_tokens=request.prompt_tokens,
        output_tokens=1,
        decode_steps=0,
        priority=request.priority,
        prefix=request.prefix,
        segment_tokens=request.segment_tokens,
    )
