"""The clock of a replica, tabulated once, so that a simulation can ask for it a million times.

A step's time is split the way its kernels are: matrix products and exchanges see all tokens alike;
attention of prompts adds what its (query, key) pairs cost, attention of decoding requests what their
caches cost. Each of the three is a table over two axes, read by linear interpolation::

    T(prompt tokens, decoding requests) + A(prompt tokens, pairs) + D(decoding requests, context)

What this leaves out: attention kernels that share a step cost less than the sum where one leaves the
device half empty, and more than one prompt ending in a step (its token goes through the head).
In a pipeline the tables hold the time of one turn of all micro-batches: the largest one has to come
through every stage, and the slowest stage has to take each of them.
"""

import math

import numpy as np

from meshfit.serve.simulate.scheduler import SchedulerSpec
from meshfit.serve.step_time import FloatArray, StepClock, StepLoad

_TOKENS_RATIO = 1.08
"""From one number of prompt tokens in the tables to the next."""
_LENGTH_POINTS = 48
"""Mean contexts in the tables, denser where they are short (their square roots are equidistant)."""


class StepTable:
    """Seconds of the steps of one replica."""

    def __init__(
        self, clock: StepClock, scheduler: SchedulerSpec, *, max_context_tokens: int
    ) -> None:
        """Tabulates ``clock`` for steps as ``scheduler`` allows them and contexts up to a length."""
        self._micro_batches = scheduler.micro_batches
        self._longest = float(max_context_tokens)
        per_request = scheduler.tokens_per_decode
        tokens = _prompt_tokens(scheduler.token_budget)
        requests = np.arange(_share(scheduler.max_sequences, self._micro_batches) + 1, dtype=float)
        lengths = self._longest * (np.arange(_LENGTH_POINTS + 1) / _LENGTH_POINTS) ** 2

        def seconds(**load: FloatArray) -> FloatArray:
            return _turn_s(
                clock, StepLoad(tokens_per_request=per_request, **load), self._micro_batches
            )

        t, n, length = tokens[None, :], requests[:, None], lengths[None, :]
        prompts = {"prefill_requests": np.sign(t), "completed_prefills": np.sign(t)}
        self._linear = seconds(prefill_tokens=t, decode_requests=n, **prompts).tolist()
        column = {key: value.T for key, value in prompts.items()}
        prompt_attention = seconds(prefill_tokens=t.T, prefill_pairs=t.T * length, **column)
        without_pairs = seconds(prefill_tokens=t.T, **column)
        self._prompt_attention = (prompt_attention - without_pairs).tolist()
        decoding = seconds(decode_requests=n, decode_context_tokens=n * length)
        self._decode_attention = (decoding - seconds(decode_requests=n)).tolist()
        self._column_of_tokens = _columns(tokens)

    def decode_s(self, requests: int, context_tokens: float) -> float:
        """A step in which so many requests decode, their caches holding ``context_tokens``."""
        share = -(-requests // self._micro_batches)
        row = self._decode_attention[share]
        return self._linear[share][0] + self._between(row, context_tokens / requests)

    def mixed_s(
        self, *, largest_chunk: int, tokens: int, pairs: float, requests: int, context_tokens: float
    ) -> float:
        """A step that also computes ``tokens`` of prompts with so many (query, key) ``pairs``, the
        largest chunk of one prompt among them ``largest_chunk``."""
        micro_batches = self._micro_batches
        in_largest = max(largest_chunk, -(-tokens // micro_batches))
        column = self._column_of_tokens[in_largest]
        index = int(column)
        weight = column - index
        share = -(-requests // micro_batches)
        row = self._linear[share]
        seconds = row[index] + (weight and weight * (row[index + 1] - row[index]))
        nearest = round(column)
        seconds += self._between(self._prompt_attention[nearest], pairs / tokens)
        if requests:
            seconds += self._between(self._decode_attention[share], context_tokens / requests)
        return seconds

    def _between(self, row: list[float], length: float) -> float:
        """The entry of ``row`` at a mean length, between its two neighbours."""
        place = math.sqrt(length / self._longest) * _LENGTH_POINTS
        index = min(int(place), _LENGTH_POINTS - 1)
        below = self._longest * (index / _LENGTH_POINTS) ** 2
        above = self._longest * ((index + 1) / _LENGTH_POINTS) ** 2
        return row[index] + (length - below) / (above - below) * (row[index + 1] - row[index])


def _turn_s(clock: StepClock, load: StepLoad, micro_batches: int) -> FloatArray:
    """Seconds of one turn of equal micro-batches through the pipeline."""
    step_s = np.asarray(clock.step_s(load))
    if micro_batches == 1:
        return step_s
    return np.maximum(step_s, micro_batches * np.asarray(clock.interval_s(load)))


def _share(requests: int, micro_batches: int) -> int:
    """Requests in the largest of the micro-batches."""
    return -(-requests // micro_batches)


def _prompt_tokens(budget: int) -> FloatArray:
    """0, 1, 2 ... growing by a ratio up to the budget."""
    steps = math.ceil(math.log(max(budget, 2)) / math.log(_TOKENS_RATIO))
    grown = np.unique(np.round(_TOKENS_RATIO ** np.arange(steps)))
    return np.concatenate([[0.0], grown[grown < budget], [float(budget)]])


def _columns(tokens: FloatArray) -> list[float]:
    """For every whole number of tokens, its place between those in the tables."""
    whole = np.arange(int(tokens[-1]) + 1)
    return [float(place) for place in np.interp(whole, tokens, np.arange(len(tokens)))]
