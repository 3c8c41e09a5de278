"""What documents of different lengths make of attention: less work, and not the same on all ranks.

A token sees its own document alone, so a sequence costs the sum of squared lengths of what it is
packed from. Of equally many tokens one rank then has more to compute than another.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from meshfit.workload.blocks.block import Block
from meshfit.workload.counts import attention_flops
from meshfit.workload.documents import SEED, DocumentSpec, segments
from meshfit.workload.training import TrainingSpec

FloatArray = NDArray[np.float64]

SUMS = 4096
"""Sampled sums of sequences' work, of which the expected largest is taken."""
LARGEST_SUM = 64
"""Sequences beyond which a sum's deviation shrinks as the root of their number."""


def mixing_flops_per_token(block: Block, training: TrainingSpec) -> float:
    """Forward FLOPs of one block beside matmuls with weights, per token of the job's sequences."""
    length = training.sequence_length
    if training.documents is None:
        return attention_flops(block, [length]) / length
    pieces = [(round(n), count) for n, count in segments(training.documents, length).lengths]
    flops = sum(count * block.token_mixing_flops(tokens) for tokens, count in pieces)
    return flops / sum(count * tokens for tokens, count in pieces)


def document_length(training: TrainingSpec) -> float:
    """Length of the piece of a document that a token lies in, on average over tokens."""
    if training.documents is None:
        return float(training.sequence_length)
    pieces = segments(training.documents, training.sequence_length).lengths
    squares = sum(count * tokens**2 for tokens, count in pieces)
    return squares / sum(count * tokens for tokens, count in pieces)


@dataclass(frozen=True, kw_only=True, eq=False)
class WorkSpread:
    """Sums of squared lengths of packed sequences, as sampled with a fixed seed.

    ``work``: of one sequence each, sorted.
    """

    work: FloatArray
    _sums: dict[int, FloatArray] = field(default_factory=dict)
    _largest: dict[tuple[int, int], float] = field(default_factory=dict)

    def expected_largest(self, summed: int, ranks: int) -> float:
        """Expected largest of ``ranks`` sums of ``summed`` sequences' work, over the expected sum.

        Of a sorted sample x_1 .. x_N the expected largest of n draws is
        ``sum x_i ((i / N)^n - ((i - 1) / N)^n)``.
        """
        if ranks <= 1:
            return 1.0
        key = summed, ranks
        if key not in self._largest:
            sums = self._sums_of(min(summed, LARGEST_SUM))
            below = np.arange(len(sums) + 1) / len(sums)
            largest = float(sums @ np.diff(below**ranks))
            beyond = max(1.0, summed / LARGEST_SUM)
            self._largest[key] = 1 + max(0.0, largest - 1) / beyond**0.5
        return self._largest[key]

    def _sums_of(self, summed: int) -> FloatArray:
        """Sampled sums over their mean, sorted."""
        if summed not in self._sums:
            drawn = np.random.default_rng(SEED).choice(self.work, size=(SUMS, summed)).sum(axis=1)
            self._sums[summed] = np.sort(drawn / drawn.mean())
        return self._sums[summed]


@lru_cache(maxsize=16)
def work_spread(documents: DocumentSpec, sequence_length: int) -> WorkSpread:
    """Of the sequences that documents fill."""
    return WorkSpread(work=segments(documents, sequence_length).work)
