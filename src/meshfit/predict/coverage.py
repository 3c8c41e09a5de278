"""Which models the memory and time model covers; any other is refused, never estimated wrongly."""

from meshfit.errors import InputError
from meshfit.mesh.candidates import RECOMPUTE, SCHEDULES
from meshfit.predict.memory.blocks import is_covered
from meshfit.workload.model import ModelSpec

COVERED_SCHEDULES: tuple[str, ...] = SCHEDULES
COVERED_RECOMPUTE: tuple[str, ...] = RECOMPUTE


def require_covered(model: ModelSpec) -> None:
    """Does nothing for a model that can be estimated.

    Raises:
        InputError: it cannot; the message says why.
    """
    reason = why_not_covered(model)
    if reason is not None:
        raise InputError(reason)


def why_not_covered(model: ModelSpec) -> str | None:
    """None for a decoder of blocks that ``predict.memory.blocks`` knows; else what it has beside them."""
    unknown = dict.fromkeys(
        f"{name} {type(block).__name__.removesuffix('Spec')}"
        for layer in model.layers
        for name, block in layer.blocks
        if not is_covered(block)
    )
    if unknown:
        return _refusal(model, f"{', '.join(unknown)} layers")
    if model.encoder:
        return _refusal(model, "an encoder, whose tokens a workload does not count")
    unsized = [tower.name for tower in model.towers if tower.tensors is None]
    if unsized:
        return _refusal(model, f"a tower of unknown size ({unsized[0]})")
    return None


def _refusal(model: ModelSpec, has: str) -> str:
    return f"the memory model does not cover {model.name}: it has {has}"
