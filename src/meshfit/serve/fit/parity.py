"""Whether a deployment gives the output of the baseline: greedy tokens of fixed prompts, and how
likely each was."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from meshfit.errors import InputError
from meshfit.record.serving import GreedyOutput, OutputParity
from meshfit.serve.bench.http import completion
from meshfit.serve.servers.running import RunningServer

PROMPTS = 6
PROMPT_TOKENS = 24
OUTPUT_TOKENS = 16
_SEED = 20_240_601

TOLERANCE = 2e-3
"""In natural logarithms of probabilities, fp32: other orders of summation move them by some 1e-5, and
a swapped head or a lost shard by tenths."""

TOLERANCE_16_BITS = 0.1
"""The same where servers compute in 16 bits, whose products keep some 3 digits (not measured here)."""


def fixed_prompts(vocab_size: int, longest_tokens: int) -> list[list[int]]:
    """The prompts that outputs are compared on; always the same for a vocabulary."""
    length = min(PROMPT_TOKENS, longest_tokens - OUTPUT_TOKENS)
    if length < 1:
        raise InputError(
            f"contexts of {longest_tokens} tokens are too short to compare outputs of {OUTPUT_TOKENS}"
        )
    generator = np.random.default_rng(_SEED)
    prompts: list[list[int]] = generator.integers(0, vocab_size, (PROMPTS, length)).tolist()
    return prompts


def greedy_outputs(
    server: RunningServer, prompts: Sequence[Sequence[int]], *, timeout_s: float
) -> tuple[GreedyOutput, ...]:
    """What a server generates for each prompt.

    Raises:
        InputError: it refuses, or does not tell tokens and log-probabilities.
    """
    return tuple(
        _output(
            completion(
                server.url, server.model, prompt, max_tokens=OUTPUT_TOKENS, timeout_s=timeout_s
            )
        )
        for prompt in prompts
    )


def _output(document: Mapping[str, Any]) -> GreedyOutput:
    try:
        choice = document["choices"][0]
        return GreedyOutput(
            tokens=tuple(choice["token_ids"]),
            log_probabilities=tuple(choice["logprobs"]["token_logprobs"]),
        )
    except (LookupError, TypeError):
        raise InputError(
            "the server does not tell token ids and log-probabilities of a completion, so its output "
            "cannot be compared"
        ) from None


def compare_outputs(
    found: Sequence[GreedyOutput],
    baseline: Sequence[GreedyOutput],
    *,
    tolerance: float = TOLERANCE,
) -> OutputParity:
    """How far outputs agree. They do where log-probabilities of equal tokens are within
    ``tolerance``, and a first unequal one is a tie by as much: greedy choice between two tokens that
    are equally likely depends on rounding, and everything behind it on that choice."""
    pairs = list(zip(found, baseline, strict=True))
    compared = [_compare(one, other) for one, other in pairs]
    divergences = [first for first, _ in compared if first is not None]
    total = sum(len(other.tokens) for other in baseline)
    equal = sum(
        len(other.tokens) if first is None else first
        for (first, _), other in zip(compared, baseline, strict=True)
    )
    largest = max(difference for _, difference in compared)
    return OutputParity(
        ok=largest <= tolerance,
        prompts=len(pairs),
        share_equal=equal / total,
        first_divergence=min(divergences, default=None),
        largest_difference=largest,
        tolerance=tolerance,
    )


def _compare(found: GreedyOutput, baseline: GreedyOutput) -> tuple[int | None, float]:
    """Index of the first unequal token, and the largest difference of log-probabilities up to it."""
    both = zip(found.tokens, baseline.tokens, strict=False)
    first = next((place for place, (one, other) in enumerate(both) if one != other), None)
    if first is None and len(found.tokens) != len(baseline.tokens):
        return min(len(found.tokens), len(baseline.tokens)), math.inf
    end = len(baseline.tokens) if first is None else first + 1
    values = zip(found.log_probabilities[:end], baseline.log_probabilities[:end], strict=True)
    return first, max((_difference(one, other) for one, other in values), default=0.0)


def _difference(one: float, other: float) -> float:
    difference = abs(one - other)
    return math.inf if math.isnan(difference) else difference
