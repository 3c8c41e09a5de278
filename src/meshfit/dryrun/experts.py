"""Routed experts on fake tensors: how many tokens go where is a value, so loads are taken as even."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from meshfit.dryrun.world import replaced
from meshfit.run.experts import dispatch, layer


@contextmanager
def even_loads() -> Iterator[None]:
    """Inside, every rank of an expert group gets as many rows from each, and experts' matmuls are ones
    of all rows at once: their results and FLOPs are the same."""
    with (
        replaced(dispatch, "message_sizes", _even_sizes),
        replaced(layer, "grouped_matmul", _GroupedMatmul.apply),
    ):
        yield


def _even_sizes(sent: Tensor, _received: Tensor, num_rows: int) -> tuple[list[int], list[int]]:
    ranks = len(sent)
    sizes = [num_rows // ranks + (rank < num_rows % ranks) for rank in range(ranks)]
    return sizes, [sizes[0]] * ranks


class _GroupedMatmul(torch.autograd.Function):  # type: ignore[misc]  # PyTorch is Any to mypy
    """PyTorch's own wants bf16 of fake tensors, whatever real ones may be. ``weight`` is [experts, in,
    out], ``ends`` where each expert's rows end."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight, ends)
        return rows @ weight[0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        rows, weight, _ = ctx.saved_tensors
        of_weight = torch.empty_like(weight)
        torch.mm(rows.t(), gradient, out=of_weight[0])
        return gradient @ weight[0].t(), of_weight, None
