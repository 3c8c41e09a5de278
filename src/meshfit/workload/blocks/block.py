"""What every kind of block answers."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from meshfit.workload.blocks.tensor import Tensor

ELEMENT_BYTES = 2
"""Of a 16-bit cache or state."""

CacheKind = Literal["attention", "indexer", "cross_attention"]
"""``attention``: keys and values, or the latent that stands for them; ``indexer``: keys of a sparse
attention's indexer; ``cross_attention``: keys and values of the encoder's tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cache:
    """What one block keeps for the tokens of a sequence.

    Attributes:
        elements: elements of one entry.
        heads: key/value heads that tensor parallelism may share out; 1: each rank holds it all.
        stride: tokens that share one entry (compressed attention).
        window: entries are kept for the last ``window`` tokens only; None: for all.
    """

    kind: CacheKind
    elements: int
    heads: int = 1
    stride: int = 1
    window: int | None = None

    def bytes_per_token(self, tp: int = 1) -> int:
        """Of a 16-bit cache on one of ``tp`` ranks, every token kept; rounded up where tokens share
        an entry.

        A rank holds whole heads, one at least: with more ranks than heads they are replicated.
        """
        heads_on_rank = -(-self.heads // tp)
        elements = self.elements // self.heads * heads_on_rank
        return -(-elements * ELEMENT_BYTES // self.stride)

    def bytes_of(self, tokens: int) -> int:
        """Of a 16-bit cache of one sequence of ``tokens``, no more than the window kept."""
        kept = tokens if self.window is None else min(tokens, self.window)
        return self.elements * ELEMENT_BYTES * (kept // self.stride)


class Block(ABC):
    """One part of a layer that sits between norms: attention, a state-space mixer, an MLP."""

    mixes_tokens: ClassVar[bool] = True
    """False in blocks that see one token at a time: MLPs and experts."""

    @abstractmethod
    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """The parameters, named below the block."""

    def token_mixing_flops(self, length: int, *, causal: bool = True) -> int:
        """Forward FLOPs over one document of ``length`` tokens beside matmuls with weights."""
        return 0

    @property
    def caches(self) -> tuple[Cache, ...]:
        """What is kept for every token of a sequence."""
        return ()

    @property
    def state_bytes(self) -> int:
        """Bytes that one sequence keeps whatever its length."""
        return 0

    @property
    def formula(self) -> str:
        """``token_mixing_flops`` in words, per token; empty where it is 0."""
        return ""
