"""Tokens on their way to all the ranks that hold a part of every expert's width, and back.

An expert's output is then a sum over these ranks of what each makes of its part. Whatever one of
them gathers, the gradient is a sum over them too, each of which has seen its own part alone.

Legend: T tokens of a rank, K choices of a token, H hidden.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed._functional_collectives as functional_collectives
from torch import Tensor
from torch.distributed import ProcessGroup

from meshfit.measure.timeline.axes import along


class Gathering(Protocol):
    """How the ranks of one expert bring their tokens together."""

    @property
    def sources(self) -> int:
        """Ranks whose tokens come together, one's behind another's."""

    @property
    def own(self) -> int:
        """Which of them this rank is."""

    def gather(
        self, hidden_TH: Tensor, chosen_TK: Tensor, weights_TK: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same of the tokens of all sources."""

    def scatter(self, outputs_TH: Tensor, dtype: torch.dtype) -> Tensor:
        """Of all sources' tokens one rank's summands -> whole outputs of its own, added up in
        ``dtype``."""


class WholeExperts:
    """A rank's experts are whole: it needs nobody."""

    sources, own = 1, 0

    def gather(
        self, hidden_TH: Tensor, chosen_TK: Tensor, weights_TK: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        return hidden_TH, chosen_TK, weights_TK

    def scatter(self, outputs_TH: Tensor, dtype: torch.dtype) -> Tensor:
        return outputs_TH


@dataclass(frozen=True)
class TokensOfEach:
    """Every rank of ``group`` has tokens of its own, as many as the others (sequence parallelism)."""

    group: ProcessGroup
    axis: str

    @property
    def sources(self) -> int:
        return self.group.size()

    @property
    def own(self) -> int:
        return self.group.rank()

    def gather(
        self, hidden_TH: Tensor, chosen_TK: Tensor, weights_TK: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        chosen = _all_gather(chosen_TK, self.group, self.axis)
        hidden, weights = (_Gather.apply(t, self.group, self.axis) for t in (hidden_TH, weights_TK))
        return hidden, chosen, weights

    def scatter(self, outputs_TH: Tensor, dtype: torch.dtype) -> Tensor:
        return _Scatter.apply(outputs_TH.to(dtype), self.group, self.axis)


@dataclass(frozen=True)
class TokensOfAll:
    """Every rank of ``group`` has the same tokens, and all of them."""

    group: ProcessGroup
    axis: str

    sources, own = 1, 0

    def gather(
        self, hidden_TH: Tensor, chosen_TK: Tensor, weights_TK: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        hidden, weights = (_Share.apply(t, self.group, self.axis) for t in (hidden_TH, weights_TK))
        return hidden, chosen_TK, weights

    def scatter(self, outputs_TH: Tensor, dtype: torch.dtype) -> Tensor:
        return _Sum.apply(outputs_TH.to(dtype), self.group, self.axis)


class _Gather(torch.autograd.Function):
    """Rows of all ranks, rank by rank; a row's gradient is the sum of what all of them found."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: ProcessGroup, axis: str) -> Tensor:
        ctx.saved = group, axis
        return _all_gather(rows, group, axis)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _reduce_scatter(gradient, *ctx.saved), None, None


class _Scatter(torch.autograd.Function):
    """The sum over ranks of this rank's rows; of a gradient every rank needs all rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: ProcessGroup, axis: str) -> Tensor:
        ctx.saved = group, axis
        return _reduce_scatter(rows, group, axis)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _all_gather(gradient, *ctx.saved), None, None


class _Share(torch.autograd.Function):
    """Rows as they are; their gradient is the sum of what all ranks found."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: ProcessGroup, axis: str) -> Tensor:
        ctx.saved = group, axis
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _all_reduce(gradient, *ctx.saved), None, None


class _Sum(torch.autograd.Function):
    """The sum over ranks, of which all go on with the same gradient."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: ProcessGroup, axis: str) -> Tensor:
        return _all_reduce(rows, group, axis)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient, None, None


def _all_gather(rows: Tensor, group: ProcessGroup, axis: str) -> Tensor:
    with along(axis):
        gathered = functional_collectives.all_gather_single(rows.contiguous(), 0, group)
        return functional_collectives.wait_tensor(gathered)


def _reduce_scatter(rows: Tensor, group: ProcessGroup, axis: str) -> Tensor:
    with along(axis):
        own = functional_collectives.reduce_scatter_single(rows.contiguous(), "sum", 0, group)
        return functional_collectives.wait_tensor(own)


def _all_reduce(rows: Tensor, group: ProcessGroup, axis: str) -> Tensor:
    with along(axis):
        total = functional_collectives.all_reduce(rows.contiguous(), "sum", group)
        return functional_collectives.wait_tensor(total)
