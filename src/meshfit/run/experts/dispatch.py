"""Copies of tokens on their way to the ranks that hold their experts, and back.

Legend: C copies of tokens sorted by expert, E experts (all of the layer), L experts of this rank,
R ranks of the expert group, H hidden.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from meshfit.run.experts.capacity import TokenGroups, capacity
from meshfit.run.experts.exchange import exchange, exchange_counts, message_sizes
from meshfit.run.experts.permute import Copies, inverse, places_in_line, spread
from meshfit.run.experts.spans import ExchangeTimes

Compute = Callable[[Tensor, Tensor], Tensor]
"""(rows sorted by expert of this rank, how many each gets) -> their outputs."""

OnLimit = Callable[[Tensor, Tensor], None]
"""Told of (copies that were dropped, places that were sent empty), each a number on the device."""


class Dispatch(Protocol):
    """Brings copies to their experts."""

    def __call__(self, rows_CH: Tensor, copies: Copies, compute: Compute) -> Tensor:
        """What the experts make of ``rows_CH``, in their order."""


class LocalDispatch:
    """Every expert is here, and takes all of its copies."""

    def __call__(self, rows_CH: Tensor, copies: Copies, compute: Compute) -> Tensor:
        return compute(rows_CH, copies.counts_E)


class DroplessDispatch:
    """Every copy reaches its expert: messages are as long as the router makes them."""

    def __init__(self, group: ProcessGroup, times: ExchangeTimes) -> None:
        self._group = group
        self._times = times

    def __call__(self, rows_CH: Tensor, copies: Copies, compute: Compute) -> Tensor:
        times, group = self._times, self._group
        with times.dispatch.measure():
            counts_RL = exchange_counts(copies.counts_E, group)
            sent_R = copies.counts_E.unflatten(0, (group.size(), -1)).sum(dim=1)
            send, receive = message_sizes(sent_R, counts_RL.sum(dim=1), len(rows_CH))
        rows = exchange(rows_CH, send, receive, group, there=times.dispatch, back=times.combine)
        order = _by_expert(counts_RL, sum(receive))
        outputs = compute(rows[order], counts_RL.sum(dim=0))[inverse(order)]
        return exchange(outputs, receive, send, group, there=times.combine, back=times.dispatch)


def _by_expert(counts_RL: Tensor, num_rows: int) -> Tensor:
    """Rows that came rank by rank, each rank's sorted by expert, in the order of experts."""
    num_experts = counts_RL.shape[1]
    return (spread(counts_RL.flatten(), num_rows) % num_experts).argsort(stable=True)


@dataclass(frozen=True, kw_only=True)
class LimitedDispatch:
    """Every expert takes as many copies from each rank: messages have one length, known before.

    Places without a copy are sent as zeros. ``group`` is None where every expert is here. Tokens are
    those of ``sources`` ranks, one's behind another's, of which this is ``own`` and counts its own.
    """

    factor: float
    group: ProcessGroup | None
    times: ExchangeTimes
    on_limit: OnLimit
    sources: int = 1
    own: int = 0

    def __call__(self, rows_CH: Tensor, copies: Copies, compute: Compute) -> Tensor:
        num_experts, num_tokens = len(copies.counts_E), copies.num_tokens // self.sources
        limit = capacity(num_tokens, copies.num_choices, num_experts, self.factor)
        sources_C = copies.tokens // num_tokens
        dropped_C, places_C = _places(
            copies.experts * self.sources + sources_C, num_experts * self.sources, limit
        )
        num_dropped = (dropped_C & (sources_C == self.own)).sum()
        num_copies = len(rows_CH) // self.sources
        self.on_limit(num_dropped, num_experts * limit - num_copies + num_dropped)
        # One more place takes what is dropped; what comes back from there is zero.
        num_places = num_experts * self.sources * limit
        buffer = rows_CH.new_zeros(num_places + 1, rows_CH.shape[1])
        sent = buffer.index_copy(0, places_C, rows_CH)[:num_places]
        outputs = self._through_experts(sent, num_experts, self.sources * limit, compute)
        return torch.cat([outputs, outputs.new_zeros(1, outputs.shape[1])])[places_C]

    def _through_experts(
        self, rows: Tensor, num_experts: int, limit: int, compute: Compute
    ) -> Tensor:
        ranks = self.group.size() if self.group else 1
        mine = num_experts // ranks
        by_rank = self._exchange(rows, mine * limit, forth=True).unflatten(0, (ranks, mine, limit))
        each = torch.full((mine,), ranks * limit, device=rows.device)
        outputs = compute(by_rank.transpose(0, 1).flatten(0, 2), each)
        by_expert = outputs.unflatten(0, (mine, ranks, limit))
        return self._exchange(by_expert.transpose(0, 1).flatten(0, 2), mine * limit, forth=False)

    def _exchange(self, rows: Tensor, rows_of_rank: int, *, forth: bool) -> Tensor:
        if self.group is None:
            return rows
        counts = [rows_of_rank] * self.group.size()
        there, back = self.times.dispatch, self.times.combine
        if not forth:
            there, back = back, there
        return exchange(rows, counts, counts, self.group, there=there, back=back)


def _places(keys_C: Tensor, num_keys: int, limit: int) -> tuple[Tensor, Tensor]:
    """Which copies are dropped, and the place of each in a buffer of ``limit`` a key."""
    in_line_C = places_in_line(keys_C, num_keys)
    dropped_C = in_line_C >= limit
    return dropped_C, (keys_C * limit + in_line_C).masked_fill(dropped_C, num_keys * limit)


@dataclass(frozen=True, kw_only=True)
class GroupLimitedDispatch:
    """Drops in one process what the ranks of a layout drop, each on its share of the batch."""

    factor: float
    groups: TokenGroups
    on_limit: OnLimit

    def __call__(self, rows_CH: Tensor, copies: Copies, compute: Compute) -> Tensor:
        num_experts, groups = len(copies.counts_E), self.groups
        limit = capacity(groups.tokens_of_rank, copies.num_choices, num_experts, self.factor)
        num_groups = copies.num_tokens // groups.tokens_of_rank
        keys_C = groups.ranks(copies.tokens) * num_experts + copies.experts
        dropped_C = places_in_line(keys_C, num_groups * num_experts) >= limit
        num_places, num_dropped = num_groups * num_experts * limit, dropped_C.sum()
        self.on_limit(num_dropped, num_places - len(rows_CH) + num_dropped)
        return compute(rows_CH, copies.counts_E).masked_fill(dropped_C.unsqueeze(1), 0.0)
