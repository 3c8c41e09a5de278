"""The clock of a replica, tabulated as it is used, so that a simulation can ask it a million times.

A step's time is split the way its kernels are: matrix products and exchanges see all tokens alike;
attention of prompts adds what its (query, key) pairs cost, attention of decoding requests what their
caches cost. Each of the three is read from a table by linear interpolation::

    T(prompt tokens, decoding requests) + A(prompt tokens, pairs) + D(decoding requests, context)

What this leaves out: the two kinds of attention may share a kernel that a small one leaves half
empty, and of several prompts that end in one step each sends a token through the head.
In a pipeline the tables hold one turn of all micro-batches: the largest has to come through every
stage, and the slowest stage has to take each of them.
"""

import math
from dataclasses import dataclass

import numpy as np

from meshfit.serve.simulate.scheduler import SchedulerSpec
from meshfit.serve.step_time import FloatArray, StepClock, StepLoad

_TOKENS_RATIO = 1.08
"""From one number of prompt tokens in the tables to the next."""
_LENGTH_POINTS = 48
"""Mean contexts in the tables; their square roots are equidistant, so that short ones lie closer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Decoding:
    """Rows of a number of decoding requests: T by prompt tokens; T(0) + D by mean context."""

    linear: list[float]
    alone: list[float]


class StepTable:
    """Seconds of the steps of one replica."""

    def __init__(
        self, clock: StepClock, scheduler: SchedulerSpec, *, max_context_tokens: int
    ) -> None:
        """Tabulates ``clock`` for steps that ``scheduler`` allows and contexts up to a length."""
        self._clock = clock
        self._micro_batches = scheduler.micro_batches
        self._tokens_per_request = float(scheduler.tokens_per_decode)
        self._points_per_length = _LENGTH_POINTS**2 / max_context_tokens
        self._lengths = np.arange(_LENGTH_POINTS + 2) ** 2 / self._points_per_length
        self._tokens = _prompt_tokens(scheduler.token_budget)
        self._column_of_tokens = _columns(self._tokens)
        self._prompt_attention = self._prompt_attention_rows()
        self._decoding: dict[int, _Decoding] = {}

    def decode_s(self, requests: int, context_tokens: float) -> float:
        """A step in which so many requests decode, their caches holding ``context_tokens``."""
        return self._at_length(self._rows(requests).alone, context_tokens / requests)

    def mixed_s(
        self, *, largest_chunk: int, tokens: int, pairs: float, requests: int, context_tokens: float
    ) -> float:
        """A step that also computes ``tokens`` of prompts with so many (query, key) ``pairs``; the
        largest chunk of one prompt among them is ``largest_chunk``."""
        if self._micro_batches > 1:
            largest_chunk = max(largest_chunk, -(-tokens // self._micro_batches))
        else:
            largest_chunk = tokens
        column = self._column_of_tokens[largest_chunk]
        index = int(column)
        weight = column - index
        rows = self._rows(requests)
        linear = rows.linear
        seconds = self._at_length(self._prompt_attention[index], pairs / tokens) + linear[index]
        if weight:
            above = self._at_length(self._prompt_attention[index + 1], pairs / tokens)
            seconds += weight * (above + linear[index + 1] - seconds)
        if requests:
            seconds += self._at_length(rows.alone, context_tokens / requests) - linear[0]
        return seconds

    def _at_length(self, row: list[float], length: float) -> float:
        """The entry of ``row`` at a mean length, between its two neighbours."""
        squared = length * self._points_per_length
        index = int(math.sqrt(squared))
        below = row[index]
        share = (squared - index * index) / (2 * index + 1)
        return below + share * (row[index + 1] - below)

    def _rows(self, requests: int) -> _Decoding:
        """Those of the largest micro-batch of so many requests."""
        share = -(-requests // self._micro_batches)
        rows = self._decoding.get(share)
        if rows is None:
            rows = self._decoding[share] = self._tabulate(float(share))
        return rows

    def _tabulate(self, requests: float) -> _Decoding:
        tokens, is_prompt = self._tokens, np.sign(self._tokens)
        linear = self._turn_s(
            prefill_tokens=tokens,
            prefill_requests=is_prompt,
            completed_prefills=is_prompt,
            decode_requests=requests,
        )
        decoding = self._turn_s(
            decode_requests=requests, decode_context_tokens=requests * self._lengths
        )
        return _Decoding(linear=linear.tolist(), alone=decoding.tolist())

    def _prompt_attention_rows(self) -> list[list[float]]:
        tokens = self._tokens[:, None]
        prompts = {"prefill_tokens": tokens, "prefill_requests": np.sign(tokens)}
        with_pairs = self._turn_s(prefill_pairs=tokens * self._lengths, **prompts)
        rows: list[list[float]] = (with_pairs - self._turn_s(**prompts)).tolist()
        return rows

    def _turn_s(self, **load: FloatArray | float) -> FloatArray:
        """Seconds of one turn of equal micro-batches, each with this load."""
        of_one = StepLoad(tokens_per_request=self._tokens_per_request, **load)
        step_s = np.asarray(self._clock.step_s(of_one))
        if self._micro_batches == 1:
            return step_s
        return np.maximum(step_s, self._micro_batches * np.asarray(self._clock.interval_s(of_one)))


def _prompt_tokens(budget: int) -> FloatArray:
    """0, 1, 2 ... growing by a ratio up to the budget."""
    steps = math.ceil(math.log(max(budget, 2)) / math.log(_TOKENS_RATIO))
    grown = np.unique(np.round(_TOKENS_RATIO ** np.arange(steps)))
    return np.concatenate([[0.0], grown[grown < budget], [float(budget)]])


def _columns(tokens: FloatArray) -> list[float]:
    """Of every whole number of tokens, its place between those in the tables."""
    whole = np.arange(int(tokens[-1]) + 1)
    return [float(place) for place in np.interp(whole, tokens, np.arange(len(tokens)))]
