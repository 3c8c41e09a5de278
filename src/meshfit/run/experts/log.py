"""What routers did in each step, kept on the device until somebody asks.

Nothing here makes the host wait for the device, and nothing is counted twice where recomputation
runs a forward again. All tensors are small: a number for each layer, or for each of its experts.

Legend: L layers with experts on this rank, E experts, T tokens, K choices of a token.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from meshfit.run.experts.permute import count
from meshfit.run.model.loss import IGNORED


def is_recomputing() -> bool:
    """Whether this is a forward that a backward runs again."""
    return torch._C._current_graph_task_id() != -1


@dataclass
class StepCounts:
    """One step of this rank, all of its micro-batches together.

    Attributes:
        tokens_LE: copies that routers sent to each expert, dropped ones included.
        entropy_L: sum over tokens of the entropy of the router's scores, in nats.
        dropped_L: copies that found their expert full; padded_L: places that were sent empty.
        loss_E, labels_E: summed loss of the tokens whose first expert in the last layer this is, and
            how many they are.
        auxiliary: mean over micro-batches of the auxiliary loss.
    """

    tokens_LE: Tensor
    entropy_L: Tensor
    dropped_L: Tensor
    padded_L: Tensor
    loss_E: Tensor
    labels_E: Tensor
    auxiliary: Tensor


def empty_counts(num_layers: int, num_experts: int, device: torch.device) -> StepCounts:
    """A step in which nothing happened yet."""

    def zeros(*shape: int | tuple[()], dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.zeros(*shape, dtype=dtype, device=device)

    return StepCounts(
        tokens_LE=zeros(num_layers, num_experts),
        entropy_L=zeros(num_layers, dtype=torch.float64),
        dropped_L=zeros(num_layers),
        padded_L=zeros(num_layers),
        loss_E=zeros(num_experts, dtype=torch.float64),
        labels_E=zeros(num_experts),
        auxiliary=zeros((), dtype=torch.float64),
    )


class RoutingLog:
    """Collects ``StepCounts`` of a rank's layers with experts, step by step.

    Attributes:
        layers: their numbers in the model, in order.
        steps: what was collected of each finished step.
    """

    def __init__(self) -> None:
        self.layers: tuple[int, ...] = ()
        self.num_experts = 0
        self.steps: list[StepCounts] = []
        self._row_of: dict[int, int] = {}
        self._now = empty_counts(0, 0, torch.device("cpu"))
        self._first_T = torch.empty(0, dtype=torch.int64)

    def start(self, layers: Sequence[int], num_experts: int, device: torch.device) -> None:
        """Collect from ``layers`` from now on, on ``device``."""
        self.layers = tuple(layers)
        self.num_experts = num_experts
        self._row_of = {layer: row for row, layer in enumerate(self.layers)}
        self._now = empty_counts(len(self.layers), num_experts, device)

    def route(self, layer: int, scores_TE: Tensor, chosen_TK: Tensor, weights_TK: Tensor) -> None:
        """A router of ``layer`` has decided."""
        if is_recomputing():
            return
        with torch.no_grad():
            shares_TE = scores_TE / scores_TE.sum(dim=-1, keepdim=True)
            self._now.entropy_L[self._row_of[layer]] += torch.special.entr(shares_TE).sum()
            if layer == self.layers[-1]:
                best_T1 = weights_TK.argmax(dim=-1, keepdim=True)
                self._first_T = chosen_TK.gather(1, best_T1).squeeze(1)

    def send(self, layer: int, counts_E: Tensor) -> None:
        """Experts of ``layer`` are sent so many copies."""
        if not is_recomputing():
            self._now.tokens_LE[self._row_of[layer]] += counts_E

    def limit(self, layer: int, dropped: Tensor, padded: Tensor) -> None:
        """Experts of ``layer`` were full, or not."""
        if not is_recomputing():
            self._now.dropped_L[self._row_of[layer]] += dropped
            self._now.padded_L[self._row_of[layer]] += padded

    @torch.no_grad()
    def lose(self, losses_T: Tensor, labels_T: Tensor) -> None:
        """The tokens that the last layer has just routed have these losses."""
        experts = self._first_T.masked_fill(labels_T == IGNORED, self.num_experts)
        ours = slice(self.num_experts)
        losses_E = losses_T.new_zeros(self.num_experts + 1, dtype=torch.float64)
        self._now.loss_E += losses_E.index_add_(0, experts, losses_T.double())[ours]
        self._now.labels_E += count(experts, self.num_experts + 1)[ours]

    def balance(self, loss: Tensor) -> None:
        """A micro-batch's auxiliary loss, over the number of micro-batches."""
        self._now.auxiliary += loss

    def end_step(self) -> StepCounts:
        """Close the step; what it was."""
        done = self._now
        device = done.tokens_LE.device
        self._now = empty_counts(len(self.layers), self.num_experts, device)
        self.steps.append(done)
        return done
