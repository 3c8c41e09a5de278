"""What evens out the load of experts: an auxiliary loss, or a bias on the choice.

Legend: G groups of tokens, E experts, T tokens, K choices of a token, L layers.
"""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from meshfit.measure.timeline.axes import along
from meshfit.run.experts.capacity import TokenGroups, all_tokens, whole_micro_batch
from meshfit.run.experts.log import is_recomputing
from meshfit.run.experts.permute import count


class AuxiliaryLoss:
    """Transformers' ``load_balancing_loss_func`` of each data-parallel rank's micro-batch.

    ``E * sum_e f_e P_e`` (2101.03961, eq. 4 to 6), where f is the copies sent to an expert over
    tokens and P the mean probability of it, both over the tokens of all layers together. Its scope is
    the micro-batch of one data-parallel rank: ranks that hold shards of its sequences (``shared_by``)
    are summed over; ``groups`` says which micro-batches one process stands for.
    """

    def __init__(self, groups: TokenGroups | None, shared_by: ProcessGroup | None) -> None:
        self._groups = groups
        self._shared_by = shared_by
        self._counts_GE: Tensor | None = None
        self._scores_GE: Tensor | None = None
        self._rows = 0

    def add(self, scores_TE: Tensor, chosen_TK: Tensor) -> None:
        """The router of one more layer has decided."""
        (num_tokens, num_experts), device = scores_TE.shape, scores_TE.device
        groups = self._groups or whole_micro_batch(num_tokens)
        num_groups = num_tokens // groups.tokens_of_micro_batch
        groups_T = groups.micro_batches(all_tokens(num_tokens, device))
        keys_TK = groups_T.unsqueeze(1) * num_experts + chosen_TK
        counts_GE = count(keys_TK.flatten(), num_groups * num_experts).view(num_groups, -1)
        scores_GE = scores_TE.new_zeros(num_groups, num_experts).index_add(0, groups_T, scores_TE)
        if is_recomputing():  # which makes again what the backward reads, and no second sum
            return
        if self._counts_GE is not None:
            counts_GE, scores_GE = counts_GE + self._counts_GE, scores_GE + self._scores_GE
        self._counts_GE, self._scores_GE = counts_GE, scores_GE
        self._rows += num_tokens // num_groups

    def take(self) -> Tensor:
        """The mean over groups of the loss of all layers since the last call."""
        assert self._counts_GE is not None, "no router has decided since the last call"
        counts_GE, scores_GE, rows = self._counts_GE.float(), self._scores_GE, self._rows
        self._counts_GE, self._scores_GE, self._rows = None, None, 0
        if self._shared_by is not None:
            rows *= self._shared_by.size()
            with along("tp"):
                dist.all_reduce(counts_GE, group=self._shared_by)
                scores_GE = _summed(scores_GE, self._shared_by)
        return (counts_GE * scores_GE).sum(dim=1).mean() * (counts_GE.shape[1] / rows**2)


def _summed(tensor: Tensor, group: ProcessGroup) -> Tensor:
    """The sum over ``group``; gradients stay with each rank's own summand."""
    total = tensor.detach().clone()
    dist.all_reduce(total, group=group)
    return tensor + (total - tensor.detach())


@torch.no_grad()
def move_biases(biases: list[Tensor], tokens_LE: Tensor, rate: float) -> None:
    """Raise the bias of experts with fewer copies than the mean by ``rate``, lower that of the others.

    DeepSeek-V3's balancing without a loss (2408.15664, algorithm 1), after every step;
    ``tokens_LE`` are the copies of the whole step over all ranks.
    """
    tokens_LE = tokens_LE.double()
    signs_LE = (tokens_LE.mean(dim=1, keepdim=True) - tokens_LE).sign()
    for bias_E, signs_E in zip(biases, signs_LE, strict=True):
        bias_E.add_(signs_E, alpha=rate)
