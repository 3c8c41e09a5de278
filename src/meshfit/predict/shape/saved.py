"""Tensors kept for backward, and what divides them over ranks."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.columns import StepColumns

FloatArray = NDArray[np.float64]

Split = Literal["tp", "sequence", "whole", "dispatched", "traded"]
"""``tp``: heads or width over tp. ``sequence``: tokens over tp under sequence parallelism.
``whole``: all tokens of the micro-batch on every rank. ``dispatched``: what experts receive and
return, shared by the ranks that expert parallelism takes from tp. ``traded``: heads over tp, kept
only where context-parallel ranks trade heads for tokens."""

SPLITS: tuple[Split, ...] = get_args(Split)


@dataclass(frozen=True, kw_only=True)
class SavedTensor:
    """One tensor kept for backward.

    Attributes:
        in_core: part of core attention, which selective recomputation drops.
    """

    name: str
    bytes_per_token: float
    split: Split
    in_core: bool = False


@dataclass(frozen=True, kw_only=True)
class BytesPerToken:
    """Sums of such tensors by what divides them."""

    tp: float = 0.0
    sequence: float = 0.0
    whole: float = 0.0
    dispatched: float = 0.0
    traded: float = 0.0

    def __add__(self, other: "BytesPerToken") -> "BytesPerToken":
        return BytesPerToken(
            tp=self.tp + other.tp,
            sequence=self.sequence + other.sequence,
            whole=self.whole + other.whole,
            dispatched=self.dispatched + other.dispatched,
            traded=self.traded + other.traded,
        )

    def __mul__(self, factor: float) -> "BytesPerToken":
        return BytesPerToken(
            tp=self.tp * factor,
            sequence=self.sequence * factor,
            whole=self.whole * factor,
            dispatched=self.dispatched * factor,
            traded=self.traded * factor,
        )

    @property
    def undivided(self) -> float:
        """Of all ranks together: what one rank would hold alone."""
        return self.tp + self.sequence + self.whole + self.dispatched

    def on_rank(self, columns: StepColumns) -> FloatArray:
        """Bytes of one micro-batch on one rank of every layout."""
        per_token = self.tp / columns.tp + self.sequence / columns.sequence_split + self.whole
        if self.dispatched:
            per_token = per_token + self.dispatched / columns.dispatch_split
        if self.traded:
            per_token = per_token + self.traded / columns.tp * (columns.head_ranks > 1)
        return np.asarray(columns.tokens * per_token)


def total(tensors: Iterable[SavedTensor]) -> BytesPerToken:
    """Add tensors up by what divides them."""
    sums = dict.fromkeys(SPLITS, 0.0)
    for tensor in tensors:
        sums[tensor.split] += tensor.bytes_per_token
    return BytesPerToken(**sums)
