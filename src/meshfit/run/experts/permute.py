"""Copies of tokens in the order of their experts, and back.

Legend: T tokens, K choices of a token, C copies (T x K), E experts, H hidden.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Copies:
    """One copy of a token for each expert that it chose, sorted by expert.

    ``order_C`` is the copy (``token * K + choice``) at each place; ``counts_E`` how many each
    expert gets. Copies for one expert stay in the order of their tokens.
    """

    order_C: Tensor
    counts_E: Tensor
    num_choices: int

    @property
    def num_tokens(self) -> int:
        return len(self.order_C) // self.num_choices

    @property
    def tokens(self) -> Tensor:
        """The token that each copy is of."""
        return self.order_C // self.num_choices

    @property
    def experts(self) -> Tensor:
        """The expert that each copy is for."""
        return spread(self.counts_E, len(self.order_C))

    def take(self, hidden_TH: Tensor) -> Tensor:
        """The tokens' copies in the order of experts, [C, H]."""
        return hidden_TH[self.tokens]

    def merge(self, outputs_CH: Tensor, weights_TK: Tensor) -> Tensor:
        """Weighted sum of what came back for each token, [T, H]."""
        weighted_CH = outputs_CH * weights_TK.flatten()[self.order_C].unsqueeze(-1)
        by_token = weighted_CH[inverse(self.order_C)].unflatten(0, (-1, self.num_choices))
        return by_token.sum(dim=1)


def sort_copies(chosen_TK: Tensor, num_experts: int) -> Copies:
    """The copies that ``chosen_TK`` makes."""
    experts = chosen_TK.flatten()
    return Copies(
        order_C=experts.argsort(stable=True),
        counts_E=count(experts, num_experts),
        num_choices=chosen_TK.shape[1],
    )


def inverse(order: Tensor) -> Tensor:
    """Where each index stands in the permutation ``order``."""
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order), device=order.device)
    return places


def count(keys: Tensor, num_keys: int) -> Tensor:
    """How often each of 0 .. ``num_keys`` - 1 is in ``keys``, int64; no wait for the device."""
    counts = torch.zeros(num_keys, dtype=torch.int64, device=keys.device)
    return counts.scatter_add_(0, keys, torch.ones_like(keys))


def spread(counts: Tensor, total: int) -> Tensor:
    """Each index as often as ``counts`` says, ``total`` in all: 0, 0, 2 for counts 2, 0, 1."""
    indices = torch.arange(len(counts), device=counts.device)
    return indices.repeat_interleave(counts, output_size=total)


def places_in_line(keys: Tensor, num_keys: int) -> Tensor:
    """How many equal keys come before each one."""
    order = keys.argsort(stable=True)
    counts = count(keys, num_keys)
    starts = counts.cumsum(0) - counts
    return inverse(order) - starts[keys]
