"""What a run decides about experts beyond the model's config and the layout."""

from dataclasses import dataclass
from typing import Any

from meshfit.run.experts.capacity import TokenGroups


@dataclass(frozen=True, kw_only=True)
class ExpertPolicy:
    """
    Attributes:
        capacity_factor: copies that an expert takes from a rank over an even share; None: all.
        bias_rate: by how much a balancing bias moves after a step.
        groups: the micro-batches of other ranks that one process stands for; None: its own.
    """

    capacity_factor: float | None = None
    bias_rate: float = 0.0
    groups: TokenGroups | None = None


NO_LIMITS = ExpertPolicy()
"""Dropless, and biases stay as they are."""


def auxiliary_coefficient(config: Any) -> float:
    """What the auxiliary loss counts for in the loss: nothing unless the config switches it on.

    Transformers adds it where ``output_router_logits`` is true.
    """
    if not getattr(config, "output_router_logits", False):
        return 0.0
    return float(getattr(config, "router_aux_loss_coef", 0.0))
