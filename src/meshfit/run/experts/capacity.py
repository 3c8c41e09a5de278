"""Limits to how many copies of tokens one expert takes from one rank's micro-batch.

An expert takes the first copies in token order (Megatron-Core's ``--moe-token-drop-policy
position``) up to its capacity; the rest are dropped: that expert adds nothing to them.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


def capacity(num_tokens: int, num_choices: int, num_experts: int, factor: float) -> int:
    """Copies that one expert takes: ``factor`` times an even share, rounded up (2101.03961, eq. 3)."""
    return math.ceil(factor * num_tokens * num_choices / num_experts)


@dataclass(frozen=True, kw_only=True)
class TokenGroups:
    """How the tokens of one process fall into the micro-batches of a layout's ranks.

    ``sequences`` in a row are one micro-batch of one data-parallel rank; ``shards`` are the parts
    that a sequence is cut into, each of them another rank's.
    """

    sequence_length: int
    sequences: int
    shards: int

    @property
    def tokens_of_rank(self) -> int:
        """Tokens of one micro-batch on one rank."""
        return self.sequences * self.sequence_length // self.shards

    @property
    def tokens_of_micro_batch(self) -> int:
        """Tokens of one micro-batch, the shards of its sequences together."""
        return self.sequences * self.sequence_length

    def micro_batches(self, tokens: Tensor) -> Tensor:
        """The micro-batch that each token (by its place among all of the process) is in."""
        return tokens // self.tokens_of_micro_batch

    def ranks(self, tokens: Tensor) -> Tensor:
        """The rank's share of a micro-batch that each token is in, counted through."""
        shards = tokens % self.sequence_length // (self.sequence_length // self.shards)
        return self.micro_batches(tokens) * self.shards + shards


def whole_micro_batch(num_tokens: int) -> TokenGroups:
    """All tokens are one rank's."""
    return TokenGroups(sequence_length=num_tokens, sequences=1, shards=1)


def all_tokens(num_tokens: int, device: torch.device) -> Tensor:
    """Places of a process' tokens, for ``TokenGroups``."""
    return torch.arange(num_tokens, device=device)
