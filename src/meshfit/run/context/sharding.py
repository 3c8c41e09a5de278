"""Which tokens of a sequence each context-parallel rank holds.

Under a causal mask a late token has more keys than an early one. Ranks that exchange keys therefore
hold two chunks each, one from either end: with chunks 0 to 2n - 1, rank r has r and 2n - 1 - r, and
every rank has the same work. Ranks that exchange heads see every token of what they share, so they
cut it in equal parts; in a hierarchical exchange they share one such pair of chunks.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec


@dataclass(frozen=True, kw_only=True)
class SequenceShards:
    """How a sequence is cut over ``key_ranks`` x ``head_ranks`` context-parallel ranks.

    Ranks that exchange heads are neighbours: rank ``i`` of the axis is number ``i % head_ranks`` of
    those that share shard ``i // head_ranks``.
    """

    key_ranks: int
    head_ranks: int

    def positions(
        self, sequence_length: int, rank: int, device: torch.device | None = None
    ) -> Tensor:
        """Places in the sequence of what ``rank`` holds, in ascending order.

        Raises:
            InputError: the sequence cannot be cut so.
        """
        self.check(sequence_length)
        shard, part = divmod(rank, self.head_ranks)
        return self.shared_positions(sequence_length, shard, device).chunk(self.head_ranks)[part]

    def shared_positions(
        self, sequence_length: int, shard: int, device: torch.device | None = None
    ) -> Tensor:
        """Places of what the ranks that exchange heads see together."""
        tokens = torch.arange(sequence_length, device=device)
        if self.key_ranks == 1:
            return tokens
        chunks = tokens.chunk(2 * self.key_ranks)
        return torch.cat((chunks[shard], chunks[2 * self.key_ranks - 1 - shard]))

    def check(self, sequence_length: int) -> None:
        """
        Raises:
            InputError: the sequence is no whole number of equal parts.
        """
        parts = self.parts
        if sequence_length % parts:
            below = sequence_length // parts * parts
            nearest = f"{below} or {below + parts}" if below else f"{parts}"
            raise InputError(
                f"sequence_length={sequence_length} cannot be cut into the {parts} equal parts that "
                f"cp={self.key_ranks * self.head_ranks} takes; {nearest} can"
            )

    @property
    def parts(self) -> int:
        """Equal parts of the sequence: two for each rank, where any of them exchange keys."""
        chunks = 1 if self.key_ranks == 1 else 2 * self.key_ranks
        return chunks * self.head_ranks


def shards_of(layout: LayoutSpec) -> SequenceShards:
    """How the layout's method cuts a sequence."""
    heads = head_ranks(layout)
    return SequenceShards(key_ranks=layout.cp // heads, head_ranks=heads)


def head_ranks(layout: LayoutSpec) -> int:
    """Context-parallel ranks that exchange heads: all of them, those of an inner group, or none."""
    if layout.cp_method == "all_to_all":
        return layout.cp
    return layout.cp_inner if layout.cp_method == "hierarchical" else 1
