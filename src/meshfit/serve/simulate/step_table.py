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

    def decode(self, requests: int, context_tokens: float) -> tuple[float, float]:
        """Seconds of a step in which so many requests decode, their caches holding
        ``context_tokens``, and by how much each further token there prolongs it."""
        row = self._rows(requests).alone
        points = self._points_per_length
        squared = context_tokens / requests * points
        index = int(math.sqrt(squared))
        below = row[index]
        slope = (row[index + 1] - below) / (2 * index + 1)
        return below + (squared - index * index) * slope, slope * points / requests

    def mixed_s(
        self, *, largest_chunk: int, tokens: int, pairs: float, requests: int, context_tokens: float
    ) -> float:
        """A step that also computes ``tokens`` of prompts with so many (query, key) ``pairs``; the
        largest chunk of one prompt among them is ``largest_chunk``."""
        in_largest = tokens
        if self._micro_batches > 1:
            in_largest = max(largest_chunk, -(-tokens // self._micro_batches))
        column = self._column_of_tokens[in_largest]
        index = int(column)
        weight = column - index
        linear = self._rows(requests).linear
        seconds = linear[index] + in_largest * self._pairs_s(round(column), pairs / tokens)
        if weight:
            seconds += weight * (linear[index + 1] - linear[index])
        if requests:
            seconds += self.decode(requests, context_tokens)[0] - linear[0]
        return seconds

    def _pairs_s(self, column: int, length: float) -> float:
        """What attention to ``length`` keys on average adds for one token of a prompt."""
        row = self._prompt_attention[column]
        squared = length * self._points_per_length
        index = int(math.sqrt(squared))
        share = (squared - index * index) / (2 * index + 1)
        return row[index] + share * (row[index + 1] - row[index])

    def _rows(self, requests: int) -> _Decoding:
        """Those of the largest micro-batch of so many requests."""
        rows = self._decoding.get(requests)
        if rows is None:
            share = -(-requests // self._micro_batches)
            rows = self._decoding[requests] = self._tabulate(float(share))
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
        """Seconds a token by mean number of keys, one row for each number of tokens."""
        tokens = self._tokens[:, None]
        prompts = {"prefill_tokens": tokens, "prefill_requests": np.sign(tokens)}
        with_pairs = self._turn_s(prefill_pairs=tokens * self._lengths, **prompts)
        added = with_pairs - self._turn_s(**prompts)
        rows: list[list[float]] = (added / np.maximum(tokens, 1)).tolist()
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
