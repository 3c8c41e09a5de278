"""Router and experts of one layer, in the places of Hugging Face's and under their names.

Legend: T tokens, K choices of a token, E experts, C copies of tokens, L experts of this rank,
H hidden, I inner size of an expert (this rank's part of it).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_tensor
from torch.nn import functional

from meshfit.run.experts.dispatch import Dispatch
from meshfit.run.experts.gather import Gathering
from meshfit.run.experts.permute import count, sort_copies
from meshfit.run.experts.routing import RouterRule


def has_experts(layer: nn.Module) -> bool:
    """Whether a Hugging Face layer's MLP is a mixture of experts."""
    return hasattr(layer.mlp, "experts")


Observer = Callable[[Tensor, Tensor, Tensor], None]
"""Told of (scores_TE, chosen_TK, weights_TK) in every forward."""

Choices = Callable[[Tensor], Tensor]
"""(what the router chose [T, K]) -> what is taken instead: the same, or what a reference chose."""


class Router(nn.Module):
    """Sends each token to its experts.

    Under tensor parallelism ranks share one weight. Where each routes tokens of its own
    (``routes_its_own``: sequence parallelism), its gradient is a sum over them; where all route the
    same, each finds the whole. ``layer`` is its layer's number in the model.
    """

    def __init__(
        self,
        gate: nn.Module,
        *,
        layer: int,
        routes_its_own: bool,
        rule: RouterRule,
        observe: Observer,
        replace: Choices,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.weight = gate.weight
        self._gradient = Partial() if routes_its_own else Replicate()
        self._rule = rule
        self._observe = observe
        self._replace = replace
        self.register_buffer(
            "e_score_correction_bias", getattr(gate, "e_score_correction_bias", None)
        )

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores [T, E], weights [T, K] and choices [T, K] of all tokens."""
        hidden_TH = hidden.reshape(-1, hidden.shape[-1])
        dtype = compute_dtype(hidden_TH)
        scores_TE = self._rule.scores(hidden_TH.to(dtype), self._local_weight().to(dtype))
        chosen_TK = self._replace(self._rule.choose(scores_TE, self.e_score_correction_bias))
        weights_TK = self._rule.weigh(scores_TE, chosen_TK, dtype)
        self._observe(scores_TE, chosen_TK, weights_TK)
        return scores_TE, weights_TK, chosen_TK

    def _local_weight(self) -> Tensor:
        if not isinstance(self.weight, DTensor):
            return self.weight
        return self.weight.to_local(grad_placements=[self._gradient])


def share_router(router: Router, mesh: DeviceMesh) -> None:
    """Make the weight that ranks of ``mesh`` share a DTensor, as all parameters are among them."""
    whole = distribute_tensor(router.weight, mesh, [Replicate()], src_data_rank=None)
    router.weight = nn.Parameter(whole)


class Experts(nn.Module):
    """The experts of a layer that this rank holds: gated MLPs, their weights stacked.

    It may have a part of their width, the same columns of gate and up projection and rows of the
    other; ``gathering`` are the ranks that have the rest. ``tell`` is told how many copies of this
    rank's tokens each expert is sent.
    """

    def __init__(
        self,
        experts: nn.Module,
        dispatch: Dispatch,
        gathering: Gathering,
        tell: Callable[[Tensor], None],
    ) -> None:
        super().__init__()
        self.gate_up_proj = experts.gate_up_proj
        self.down_proj = experts.down_proj
        self.act_fn = experts.act_fn
        self.num_experts = experts.num_experts
        self._dispatch = dispatch
        self._gathering = gathering
        self._tell = tell

    def forward(self, hidden_TH: Tensor, chosen_TK: Tensor, weights_TK: Tensor) -> Tensor:
        self._tell(count(chosen_TK.flatten(), self.num_experts))
        dtype = compute_dtype(hidden_TH)
        gathered_TH, chosen_TK, weights_TK = self._gathering.gather(
            hidden_TH.to(dtype), chosen_TK, weights_TK
        )
        copies = sort_copies(chosen_TK, self.num_experts)
        outputs_CH = self._dispatch(copies.take(gathered_TH), copies, self._compute)
        outputs_TH = copies.merge(outputs_CH, weights_TK)
        return self._gathering.scatter(outputs_TH, dtype).to(hidden_TH.dtype)

    def _compute(self, rows: Tensor, counts_L: Tensor) -> Tensor:
        ends_L = counts_L.cumsum(0, dtype=torch.int32)
        gate, up = grouped_linear(rows, self.gate_up_proj, ends_L).chunk(2, dim=-1)
        return grouped_linear(self.act_fn(gate) * up, self.down_proj, ends_L)


def grouped_linear(rows: Tensor, weight_LOI: Tensor, ends_L: Tensor) -> Tensor:
    """Rows up to each end through that expert's own linear (``weight_LOI`` as in ``nn.Linear``)."""
    local = weight_LOI.to_local() if isinstance(weight_LOI, DTensor) else weight_LOI
    return grouped_matmul(rows, local.to(rows.dtype).transpose(-2, -1), ends_L)


def grouped_matmul(rows: Tensor, weight_LIO: Tensor, ends_L: Tensor) -> Tensor:
    """Rows up to each end times that expert's matrix."""
    return functional.grouped_mm(rows, weight_LIO, offs=ends_L)


def compute_dtype(hidden: Tensor) -> torch.dtype:
    """What matmuls of ``hidden`` compute in: autocast's dtype where it is on."""
    kind = hidden.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
