"""Tensors kept for backward, and what divides them over ranks."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.columns import StepColumns

FloatArray = NDArray[np.float64]

Split = Literal["tp", "sequence", "whole", "dispatched", "received", "experts", "traded"]
"""``tp``: heads or width over tp. ``sequence``: tokens over tp under sequence parallelism.
``whole``: all tokens of the micro-batch on every rank. ``dispatched``: copies of a rank's own tokens as
experts return them, shared by the ranks that expert parallelism takes from tp. ``received``: copies that
the fullest rank's experts get, and ``experts``: their width over tp; both as many times an even share as
experts are assumed unbalanced. ``traded``: heads over tp, kept only where context-parallel ranks trade
heads for tokens."""

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
    received: float = 0.0
    experts: float = 0.0
    traded: float = 0.0

    def __add__(self, other: "BytesPerToken") -> "BytesPerToken":
        return BytesPerToken(
            **{split: getattr(self, split) + getattr(other, split) for split in SPLITS}
        )

    def __mul__(self, factor: float) -> "BytesPerToken":
        return BytesPerToken(**{split: getattr(self, split) * factor for split in SPLITS})

    @property
    def undivided(self) -> float:
        """Of all ranks together: what one rank would hold alone."""
        of_experts = self.dispatched + self.received + self.experts
        return self.tp + self.sequence + self.whole + of_experts

    def on_rank(self, columns: StepColumns) -> FloatArray:
        """Bytes of one micro-batch on one rank of every layout."""
        per_token = self.tp / columns.tp + self.sequence / columns.sequence_split + self.whole
        if self.dispatched:
            per_token = per_token + self.dispatched / columns.dispatch_split
        if self.received or self.experts:
            even = self.received / columns.dispatch_split + self.experts / columns.tp
            per_token = per_token + even * columns.expert_load
        if self.traded:
            per_token = per_token + self.traded / columns.tp * (columns.head_ranks > 1)
        return np.asarray(columns.tokens * per_token)


def total(tensors: Iterable[SavedTensor]) -> BytesPerToken:
    """Add tensors up by what divides them."""
    sums = dict.fromkeys(SPLITS, 0.0)
    for tensor in tensors:
        sums[tensor.split] += tensor.bytes_per_token
    return BytesPerToken(**sums)
