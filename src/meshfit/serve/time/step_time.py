"""The interface between the clock of a server and whoever needs it.

A server works in steps: each takes some tokens of prompts (a chunk of one, or several) and one token
of every request that is decoding. ``StepLoad`` describes such steps, ``StepClock`` times them.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class StepLoad:
    """What steps of one replica compute: numbers, or arrays with one entry a step (they broadcast).

    All of it is of the whole replica; attention groups (``attention_dp``) share it out evenly.

    Attributes:
        prefill_tokens: tokens of prompts computed in the step.
        prefill_requests: requests they belong to (sequences of attention).
        prefill_pairs: (query, key) pairs of these tokens without windows: a chunk of ``c`` tokens
            behind ``p`` that are cached has ``c p + c (c + 1) / 2`` (``chunk_pairs``).
        decode_requests: requests that get ``tokens_per_request`` tokens each.
        decode_context_tokens: tokens in the caches of these requests, summed.
        tokens_per_request: 1; with speculative decoding, tokens verified at once.
        completed_prefills: prompts that end in this step, whose last token goes through the head.
    """

    prefill_tokens: FloatArray | float = 0.0
    prefill_requests: FloatArray | float = 0.0
    prefill_pairs: FloatArray | float = 0.0
    decode_requests: FloatArray | float = 0.0
    decode_context_tokens: FloatArray | float = 0.0
    tokens_per_request: FloatArray | float = 1.0
    completed_prefills: FloatArray | float = 0.0


def chunk_pairs(chunk_tokens: FloatArray | float, cached_tokens: FloatArray | float) -> FloatArray:
    """(query, key) pairs of a causal chunk behind what is cached of its request."""
    chunk = np.asarray(chunk_tokens, dtype=np.float64)
    return np.asarray(chunk * cached_tokens + chunk * (chunk + 1) / 2)


class StepClock(Protocol):
    """Times steps of one replica under one layout, on one accelerator, by one engine."""

    def step_s(self, load: StepLoad) -> FloatArray:
        """Seconds from the start of a step to its tokens, through all pipeline stages."""

    def interval_s(self, load: StepLoad) -> FloatArray:
        """Seconds after which the next step may start: the slowest stage's; equals ``step_s`` for
        pp = 1."""

    @property
    def request_s(self) -> float:
        """Seconds that a request spends outside steps before its first token: HTTP, tokeniser."""
