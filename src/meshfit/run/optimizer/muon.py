"""Muon: momentum of matrices, made orthogonal (Jordan et al. 2024; ``torch.optim.Muon``).

Orthogonalising mixes all rows of a matrix. torch's own class, on a rank's shard, would make the shard
orthogonal; here each rank gathers the whole update, makes it orthogonal, and takes its part. It is
computed in bfloat16, as there.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim._muon import _adjust_lr, _zeropower_via_newtonschulz

from meshfit.run.gradients import local_tensor
from meshfit.run.model.weights import local_shard

_MOMENTUM = 0.95
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_EPSILON = 1e-7
"""Defaults of ``torch.optim.Muon``."""


class Muon(AdamW):
    """Muon for ``matrices``, AdamW for ``others``: embeddings, head, norms and biases.

    With Nesterov's momentum, and ``torch.optim.Muon``'s own step size: times the root of rows over
    columns, at least 1.
    """

    def __init__(
        self, matrices: Iterable[nn.Parameter], others: Iterable[nn.Parameter], **options: Any
    ) -> None:
        groups = [{"params": list(matrices)}, {"params": list(others)}]
        super().__init__([group for group in groups if group["params"]], **options)
        self._matrices = {id(matrix) for matrix in groups[0]["params"]}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if id(parameter) in self._matrices:
                    self._step_matrix(parameter, group["lr"], group["weight_decay"])
                    parameter.grad = None  # AdamW passes it over
        super().step(closure)

    def _step_matrix(self, matrix: nn.Parameter, lr: float, weight_decay: float) -> None:
        gradient, state = matrix.grad, self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        momentum = local_tensor(state["momentum_buffer"])
        momentum.lerp_(local_tensor(gradient), 1 - _MOMENTUM)
        local_tensor(gradient).lerp_(momentum, _MOMENTUM)  # which no one needs any more
        update = _orthogonal(gradient)
        local, box = local_shard(matrix)
        local.mul_(1 - lr * weight_decay)
        local.sub_(update[box], alpha=_adjust_lr(lr, None, matrix.shape))


def _orthogonal(update: Tensor) -> Tensor:
    """The whole of an update, orthogonal; gathered from the ranks that share it."""
    whole = update.full_tensor() if hasattr(update, "placements") else update
    return _zeropower_via_newtonschulz(whole, _COEFFICIENTS, _ITERATIONS, _EPSILON)
