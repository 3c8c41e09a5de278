"""What of a mixture of experts depends on how tokens fall to ranks, so that a reference must know."""

from collections.abc import Mapping
from typing import Any

from meshfit.mesh.spec import LayoutSpec
from meshfit.record.schema import RoutingGroups
from meshfit.workload.training import TrainingSpec


def routing_groups(
    config: Mapping[str, Any], training: TrainingSpec, layout: LayoutSpec
) -> RoutingGroups | None:
    """The tokens that one rank of ``layout`` routes at a time, where its losses depend on that.

    They do where experts take so many tokens from each rank, and where routers have an auxiliary loss
    (a product of means over a micro-batch). None where they do not: then one reference serves all
    layouts.
    """
    is_limited = training.runtime.expert_capacity_factor is not None
    has_auxiliary_loss = bool(config.get("output_router_logits"))
    if "num_experts_per_tok" not in config or not (is_limited or has_auxiliary_loss):
        return None
    shards = layout.tp if layout.sp and is_limited else 1
    return RoutingGroups(sequences=layout.micro_batch_size, shards=shards)


def reference_name(model: str, groups: RoutingGroups | None) -> str:
    """Of the reference that stands for ranks which route so: its folder's name, and its row's."""
    return model if groups is None else f"{model}-{groups.sequences}x{groups.shards}"
