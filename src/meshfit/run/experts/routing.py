"""Which experts a token chooses, and with which weights: the routers of three families.

Legend: T tokens, E experts, K choices of a token, G groups of experts.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn import functional


class RouterRule(Protocol):
    """How logits become choices. ``scores`` and ``weigh`` are differentiable, ``choose`` is not."""

    is_biased: ClassVar[bool]
    """Whether a bias that only balances the load has a say in the choice."""

    def scores(self, hidden_TH: Tensor, weight_EH: Tensor) -> Tensor:
        """[T, E] in fp32: how much each token wants each expert."""

    def choose(self, scores_TE: Tensor, bias_E: Tensor | None) -> Tensor:
        """[T, K]: experts chosen."""

    def weigh(self, scores_TE: Tensor, chosen_TK: Tensor, dtype: torch.dtype) -> Tensor:
        """[T, K]: what outputs of the chosen experts are multiplied by."""


@dataclass(frozen=True, kw_only=True)
class SoftmaxRule:
    """Mixtral and Qwen3-MoE: the most probable experts of a softmax over all of them."""

    is_biased: ClassVar[bool] = False

    num_choices: int
    normalizes: bool
    """Whether the weights of a token's choices are made to add up to 1."""

    casts: bool
    """Whether weights are in the dtype of the hidden states; else fp32."""

    def scores(self, hidden_TH: Tensor, weight_EH: Tensor) -> Tensor:
        return functional.linear(hidden_TH, weight_EH).softmax(dim=-1, dtype=torch.float32)

    def choose(self, scores_TE: Tensor, bias_E: Tensor | None) -> Tensor:
        return scores_TE.topk(self.num_choices, dim=-1).indices

    def weigh(self, scores_TE: Tensor, chosen_TK: Tensor, dtype: torch.dtype) -> Tensor:
        weights_TK = scores_TE.gather(1, chosen_TK)
        if self.normalizes:
            weights_TK = weights_TK / weights_TK.sum(dim=-1, keepdim=True)
        return weights_TK.to(dtype) if self.casts else weights_TK


@dataclass(frozen=True, kw_only=True)
class SigmoidRule:
    """DeepSeek-V3 (2412.19437, eq. 12 to 16): sigmoid scores; a bias, and a choice of groups by the
    sum of their best two, decide which experts are chosen, not what their outputs weigh."""

    is_biased: ClassVar[bool] = True

    num_choices: int
    normalizes: bool
    num_groups: int
    chosen_groups: int
    scale: float

    def scores(self, hidden_TH: Tensor, weight_EH: Tensor) -> Tensor:
        with torch.autocast(hidden_TH.device.type, enabled=False):
            return functional.linear(hidden_TH.float(), weight_EH.float()).sigmoid()

    def choose(self, scores_TE: Tensor, bias_E: Tensor | None) -> Tensor:
        biased_TE = scores_TE.detach() if bias_E is None else scores_TE.detach() + bias_E
        best_TG = biased_TE.unflatten(1, (self.num_groups, -1)).topk(2, dim=-1).values.sum(dim=-1)
        groups = best_TG.topk(self.chosen_groups, dim=-1, sorted=False).indices
        outside_TG = torch.ones_like(best_TG, dtype=torch.bool).scatter(1, groups, False)
        experts_per_group = scores_TE.shape[1] // self.num_groups
        outside_TE = outside_TG.repeat_interleave(experts_per_group, dim=1)
        allowed_TE = biased_TE.masked_fill(outside_TE, -torch.inf)
        return allowed_TE.topk(self.num_choices, dim=-1, sorted=False).indices

    def weigh(self, scores_TE: Tensor, chosen_TK: Tensor, dtype: torch.dtype) -> Tensor:
        weights_TK = scores_TE.gather(1, chosen_TK)
        if self.normalizes:
            weights_TK = weights_TK / (weights_TK.sum(dim=-1, keepdim=True) + 1e-20)
        return weights_TK * self.scale


def rule_of(config: Any) -> RouterRule:
    """The router of a Hugging Face config of a family in ``transformer.FAMILIES``."""
    match config.model_type:
        case "deepseek_v3":
            return SigmoidRule(
                num_choices=config.num_experts_per_tok,
                normalizes=config.norm_topk_prob,
                num_groups=config.n_group,
                chosen_groups=config.topk_group,
                scale=config.routed_scaling_factor,
            )
        case "qwen3_moe":
            return SoftmaxRule(
                num_choices=config.num_experts_per_tok,
                normalizes=config.norm_topk_prob,
                casts=True,
            )
        case "mixtral":
            return SoftmaxRule(num_choices=config.num_experts_per_tok, normalizes=True, casts=False)
    raise ValueError(f"{config.model_type} has no router that is known")
