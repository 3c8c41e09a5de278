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
from math import sqrt

import numpy as np

from meshfit.serve.setting.scheduler import SchedulerSpec
from meshfit.serve.time.step_time import FloatArray, StepClock, StepLoad

_TOKENS_RATIO = 1.08
"""From one number of prompt tokens in the tables to the next."""
_LENGTH_POINTS = 48
"""Mean contexts in the tables; their square roots are equidistant, so that short ones lie closer."""


Line = tuple[float, float]
"""Where a line crosses 0, and its slope."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Decoding:
    """Rows of a number of decoding requests: T by prompt tokens; T(0) + D as lines in the sum of
    contexts, by mean context."""

    linear: list[float]
    alone: list[Line]


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
        self._places = _places(self._tokens)
        self._prompt_attention = self._prompt_attention_rows()
        self._decoding: dict[int, _Decoding] = {}

    def decode(self, requests: int, context_tokens: float) -> Line:
        """Seconds of a step in which so many requests decode, as a line in what their caches hold
        together, ``context_tokens`` or a few more."""
        try:
            alone = self._decoding[requests].alone
        except KeyError:
            alone = self._tabulated(requests).alone
        return alone[int(sqrt(context_tokens / requests * self._points_per_length))]

    def mixed_s(
        self, tokens: int, pairs: float, requests: int, context_tokens: float, largest_chunk: int
    ) -> float:
        """A step that also computes ``tokens`` of prompts with so many (query, key) ``pairs``; the
        largest chunk of one prompt among them is ``largest_chunk``."""
        in_largest = tokens
        if self._micro_batches > 1:
            in_largest = max(largest_chunk, -(-tokens // self._micro_batches))
        below, weight, nearest = self._places[in_largest]
        rows = self._decoding.get(requests) or self._tabulated(requests)
        linear, length = rows.linear, pairs / tokens
        attended_s, per_key_s = self._prompt_attention[nearest][
            int(sqrt(length * self._points_per_length))
        ]
        seconds = linear[below] + weight * (linear[below + 1] - linear[below])
        seconds += in_largest * (attended_s + length * per_key_s)
        if requests:
            mean = context_tokens / requests
            alone_s, per_token_s = rows.alone[int(sqrt(mean * self._points_per_length))]
            seconds += alone_s + context_tokens * per_token_s - linear[0]
        return seconds

    def _tabulated(self, requests: int) -> _Decoding:
        """Rows of the largest micro-batch of so many requests, kept for the next time."""
        share = -(-requests // self._micro_batches)
        rows = self._decoding[requests] = self._tabulate(float(share), requests)
        return rows

    def _tabulate(self, requests: float, requests_in_all: int) -> _Decoding:
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
        return _Decoding(
            linear=[*linear.tolist(), 0.0],
            alone=_lines(max(requests_in_all, 1) * self._lengths, decoding),
        )

    def _prompt_attention_rows(self) -> list[list[Line]]:
        """Seconds a token as lines in the mean number of keys, one row for each number of tokens."""
        tokens = self._tokens[:, None]
        prompts = {"prefill_tokens": tokens, "prefill_requests": np.sign(tokens)}
        with_pairs = self._turn_s(prefill_pairs=tokens * self._lengths, **prompts)
        added = (with_pairs - self._turn_s(**prompts)) / np.maximum(tokens, 1)
        return [_lines(self._lengths, row) for row in added]

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


def _places(tokens: FloatArray) -> list[tuple[int, float, int]]:
    """Of every whole number of tokens: the one below it in the tables, its share of the way to the
    next, and the nearest of both."""
    whole = np.arange(int(tokens[-1]) + 1)
    places = np.interp(whole, tokens, np.arange(len(tokens)))
    return [(int(place), float(place) % 1, round(float(place))) for place in places]


def _lines(at: FloatArray, values: FloatArray) -> list[Line]:
    """Lines through neighbours, the first between the first two."""
    slopes = np.diff(values) / np.diff(at)
    return list(zip((values[:-1] - at[:-1] * slopes).tolist(), slopes.tolist(), strict=True))
