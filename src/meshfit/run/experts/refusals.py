"""Layouts of mixtures of experts that the runner has no code for."""

from collections.abc import Iterator, Mapping
from typing import Any

from meshfit.mesh.spec import LayoutSpec
from meshfit.run.model.transformer import is_mixture

_DIVIDES_STATES = 2
"""ZeRO stage from which FSDP2 holds parameters."""


def _is_plain(layout: LayoutSpec) -> bool:
    """Whether all ranks are taken to hold the same parameters."""
    return layout.zero_stage == 1 or (layout.tp == 1 and layout.pp == 1)


def refusals(config: Mapping[str, Any], layout: LayoutSpec) -> Iterator[tuple[str, str]]:
    """(axis, why not) of what cannot be run, with what would work."""
    has_experts = is_mixture(config)
    if layout.ep > 1 and not has_experts:
        yield "ep", "this model has no experts; use ep=1"
    if layout.etp > 1 and layout.ep == 1:
        yield "etp", "without ep all of tp cuts the experts as it is; use etp=1"
    if layout.tp % layout.etp:
        yield (
            "etp",
            f"tensor-parallel ranks cut the experts' width; use a divisor of tp={layout.tp}",
        )
    if layout.ep > 1 and layout.zero_stage < _DIVIDES_STATES and _is_plain(layout):
        yield "zero_stage", "plain replicas all hold the same experts; use zero_stage=3"
    if config.get("output_router_logits") and has_experts:
        for axis in ("pp", "cp"):
            if getattr(layout, axis) > 1:
                yield axis, "the routers' auxiliary loss takes means over all layers and sequences"
    if layout.ep > 1 and layout.tp > layout.etp and not layout.sp:
        yield (
            "ep",
            f"tensor-parallel ranks would all send the same tokens; use sp=true, or etp={layout.tp}",
        )
