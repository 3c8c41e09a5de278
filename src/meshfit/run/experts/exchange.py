"""All-to-all of rows between the ranks of an expert group, timed where it is called.

Legend: C copies of tokens, R ranks of the group, H hidden.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional_collectives
from torch import Tensor
from torch.distributed import ProcessGroup

from meshfit.measure.timeline.axes import along
from meshfit.run.experts.spans import Spans


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917  # autograd functions take no keywords
        ctx: Any,
        rows: Tensor,
        send: Sequence[int],
        receive: Sequence[int],
        group: ProcessGroup,
        there: Spans,
        back: Spans,
    ) -> Tensor:
        ctx.saved = (receive, send, group, back)
        return _all_to_all(rows, send, receive, group, there)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _all_to_all(gradient, *ctx.saved), None, None, None, None, None


def _all_to_all(
    rows: Tensor, send: Sequence[int], receive: Sequence[int], group: ProcessGroup, spans: Spans
) -> Tensor:
    with spans.measure(), along("ep"):
        received = functional_collectives.all_to_all_single(
            rows.contiguous(), list(receive), list(send), group
        )
        return functional_collectives.wait_tensor(received)


def exchange(
    rows_CH: Tensor,
    send: Sequence[int],
    receive: Sequence[int],
    group: ProcessGroup,
    *,
    there: Spans,
    back: Spans,
) -> Tensor:
    """Rows that the ranks of ``group`` have for this one, in rank order; gradients go back.

    ``send`` and ``receive`` are rows to and from each rank. ``there`` times this call, ``back`` the
    one in the backward.
    """
    return _Exchange.apply(rows_CH, send, receive, group, there, back)


def exchange_counts(counts_E: Tensor, group: ProcessGroup) -> Tensor:
    """[R, local experts]: how many copies each rank of ``group`` sends for each expert of this one."""
    received = torch.empty_like(counts_E)
    with along("ep"):
        dist.all_to_all_single(received, counts_E, group=group)
    return received.unflatten(0, (group.size(), -1))


def message_sizes(sent_R: Tensor, received_R: Tensor, num_rows: int) -> tuple[list[int], list[int]]:
    """Rows to and from each rank as numbers, ``num_rows`` to all of them together.

    A message's size must be known, so the host waits for the device here.
    """
    send, receive = torch.stack([sent_R, received_R]).tolist()
    return send, receive
