"""The clock of a server that is running: measured on requests that are alone in it.

Prefill times of several prompt lengths and decode times behind them give a straight line each::

    prefill step = start + per_token x tokens + per_pair x pairs
    decode step  = decode_start + per_cached x context

by least squares with coefficients of at least zero; a prompt's first token shows the client its HTTP
time as well, which is therefore in ``start``. Several requests in one step cost what their tokens
cost beyond one start, which holds for servers that batch; one that takes one request at a time never
asks for it.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.errors import RunError
from meshfit.record.serving import ServedRequest
from meshfit.serve.bench.open_loop import drive, prompts_of
from meshfit.serve.servers.running import RunningServer
from meshfit.serve.simulate.request import Request
from meshfit.serve.time.step_time import FloatArray, StepLoad

_REPEATS = 3
_OUTPUT_TOKENS = 9


@dataclass(frozen=True, kw_only=True)
class MeasuredClock:
    """A ``StepClock`` of one rank; see the module for its coefficients, all in seconds."""

    start_s: float
    per_token_s: float
    per_pair_s: float
    decode_start_s: float
    per_cached_s: float

    @property
    def request_s(self) -> float:
        """None: it is in ``start_s``."""
        return 0.0

    def step_s(self, load: StepLoad) -> FloatArray:
        """Seconds of a step: a start, and what its tokens, pairs and caches add."""
        prompts = np.asarray(load.prefill_tokens, dtype=np.float64)
        decoding = np.asarray(load.decode_requests) * load.tokens_per_request
        start_s = np.where(prompts > 0, self.start_s, self.decode_start_s)
        further = np.where(prompts > 0, decoding, np.maximum(decoding - 1, 0))
        return np.asarray(
            start_s
            + self.per_token_s * (prompts + further)
            + self.per_pair_s * np.asarray(load.prefill_pairs)
            + self.per_cached_s * np.asarray(load.decode_context_tokens)
        )

    def interval_s(self, load: StepLoad) -> FloatArray:
        """As ``step_s``: the server has one stage."""
        return self.step_s(load)


def calibrate(
    server: RunningServer, *, prompt_lengths: Sequence[int], vocab_size: int, timeout_s: float
) -> MeasuredClock:
    """The clock of ``server`` by requests of these lengths, one after the other.

    Raises:
        RunError: a request failed, with its reason.
    """
    lengths = [length for length in prompt_lengths for _ in range(_REPEATS)]
    requests = [_request(number, length) for number, length in enumerate([lengths[0], *lengths])]
    prompts = prompts_of(requests, vocab_size=vocab_size, seed=1)
    served = []
    for request, prompt in zip(requests, prompts, strict=True):
        (one,) = drive([server], [request], [prompt], timeout_s=timeout_s)
        if one.error:
            raise RunError(
                f"calibration: a prompt of {one.prompt_tokens} tokens failed: {one.error}"
            )
        served.append(one)
    return fit_clock(served[1:])  # the first one warms the server up


def fit_clock(served: Sequence[ServedRequest]) -> MeasuredClock:
    """The coefficients that requests which were alone show; medians over equal lengths."""
    by_length: dict[int, list[ServedRequest]] = {}
    for one in served:
        by_length.setdefault(one.prompt_tokens, []).append(one)
    lengths = np.array(sorted(by_length), dtype=np.float64)
    first_s = [_median(by_length[int(length)], _ttft_s) for length in lengths]
    gap_s = [_median(by_length[int(length)], _gap_s) for length in lengths]
    pairs = lengths * (lengths + 1) / 2
    start, per_token, per_pair = _fit([np.ones_like(lengths), lengths, pairs], first_s)
    contexts = lengths + _OUTPUT_TOKENS / 2
    decode_start, per_cached = _fit([np.ones_like(lengths), contexts], gap_s)
    return MeasuredClock(
        start_s=start,
        per_token_s=per_token,
        per_pair_s=per_pair,
        decode_start_s=decode_start,
        per_cached_s=per_cached,
    )


def _fit(columns: Sequence[NDArray[np.float64]], seconds: Sequence[float]) -> list[float]:
    """Coefficients of at least zero, by relative least squares; a column whose coefficient would be
    negative is left out (the last first)."""
    target = np.array(seconds)
    kept = list(range(len(columns)))
    while True:
        matrix = np.stack([columns[index] for index in kept], axis=1) / target[:, None]
        found = np.linalg.lstsq(matrix, np.ones_like(target), rcond=None)[0]
        negative = [index for index, value in zip(kept, found, strict=True) if value < 0]
        if not negative or len(kept) == 1:
            values = dict(zip(kept, np.maximum(found, 0).tolist(), strict=True))
            return [values.get(index, 0.0) for index in range(len(columns))]
        kept.remove(negative[-1])


def _request(number: int, prompt_tokens: int) -> Request:
    return Request(
        number=number,
        arrival_s=0.0,
        ready_s=0.0,
        prompt_tokens=prompt_tokens,
        output_tokens=_OUTPUT_TOKENS,
        decode_steps=_OUTPUT_TOKENS - 1,
    )


def _median(served: Sequence[ServedRequest], seconds: Callable[[ServedRequest], float]) -> float:
    return statistics.median(seconds(one) for one in served)


def _ttft_s(one: ServedRequest) -> float:
    assert one.first_token_s is not None
    return one.first_token_s - one.sent_s


def _gap_s(one: ServedRequest) -> float:
    return float(np.mean(one.gaps_s))
