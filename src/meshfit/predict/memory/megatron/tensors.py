"""Tensors that Megatron-Core keeps for backward, and what divides them over ranks."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.group import LayoutGroup

FloatArray = NDArray[np.float64]

Split = Literal["tp", "kv", "sequence", "whole", "batched", "scores", "experts", "dispatched"]
"""``tp``: heads or width over tp. ``kv``: key/value heads, replicated where tp exceeds them.
``sequence``: tokens over tp under sequence parallelism. ``whole``: every rank all of it.
``batched``: as tp, only where a micro-batch has several sequences. ``scores``: one per token and
key, heads over tp. ``experts``: one per token and chosen expert, width over etp. ``dispatched``:
the same, whole on every rank of an expert's tensor-parallel group."""

SPLITS: tuple[Split, ...] = get_args(Split)


@dataclass(frozen=True, kw_only=True)
class Saved:
    """One tensor kept from forward to backward.

    Attributes:
        module: the part that made it, as ``--recompute-modules`` names parts.
    """

    name: str
    bytes_per_token: float
    split: Split
    module: str = ""


@dataclass(frozen=True)
class BytesPerToken:
    """Sums of such tensors by what divides them, in the order of ``SPLITS``."""

    by_split: tuple[float, ...] = (0.0,) * len(SPLITS)

    def __add__(self, other: "BytesPerToken") -> "BytesPerToken":
        return BytesPerToken(
            tuple(a + b for a, b in zip(self.by_split, other.by_split, strict=True))
        )

    def __mul__(self, factor: float) -> "BytesPerToken":
        return BytesPerToken(tuple(factor * each for each in self.by_split))

    def __sub__(self, other: "BytesPerToken") -> "BytesPerToken":
        return self + other * -1

    def on_rank(self, tokens: "RankTokens") -> FloatArray:
        """Bytes of one micro-batch on one rank of every layout."""
        total = np.zeros(len(tokens))
        for split, each in zip(SPLITS, self.by_split, strict=True):
            if each:
                total += each * tokens.by_split[split]
        return total


def total(tensors: Iterable[Saved]) -> BytesPerToken:
    """Add tensors up by what divides them."""
    sums = dict.fromkeys(SPLITS, 0.0)
    for tensor in tensors:
        sums[tensor.split] += tensor.bytes_per_token
    return BytesPerToken(tuple(sums.values()))


@dataclass(frozen=True, kw_only=True)
class RankTokens:
    """Tokens of one micro-batch that one rank keeps a tensor of, by what divides the tensor; every
    array has one entry a layout."""

    by_split: dict[Split, FloatArray]

    def __len__(self) -> int:
        return len(self.by_split["whole"])


def rank_tokens(group: LayoutGroup, key_value_heads: int) -> RankTokens:
    """Derive them. Tokens are routed evenly over experts."""
    columns, candidates = group.columns, group.candidates
    tokens, tp = columns.tokens, columns.tp
    local = tokens / columns.sequence_split
    return RankTokens(
        by_split={
            "tp": tokens / tp,
            "kv": tokens / np.minimum(tp, key_value_heads),
            "sequence": local,
            "whole": tokens,
            "batched": np.where(candidates.micro_batch_size > 1, tokens / tp, 0.0),
            "scores": tokens * (group.training.sequence_length / tp),
            "experts": local,
            "dispatched": local * candidates.etp,
        }
    )
