"""Which models the memory and time model covers; any other is refused, never estimated wrongly."""

from meshfit.errors import InputError
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.feed_forward import MlpSpec
from meshfit.workload.model import LayerSpec, ModelSpec

COVERED_SCHEDULES: tuple[str, ...] = ("gpipe", "1f1b", "interleaved_1f1b")
COVERED_RECOMPUTE: tuple[str, ...] = ("none", "full")


def require_covered(model: ModelSpec) -> None:
    """Does nothing for a model that can be estimated.

    Raises:
        InputError: it cannot; the message says why.
    """
    reason = why_not_covered(model)
    if reason is not None:
        raise InputError(reason)


def why_not_covered(model: ModelSpec) -> str | None:
    """None for a decoder whose layers are softmax attention and a dense MLP; else what it has
    beside them (other blocks, an encoder, a tower)."""
    others = dict.fromkeys(
        f"{name} {type(block).__name__.removesuffix('Spec')}"
        for layer in model.layers
        for name, block in layer.blocks
        if not isinstance(block, AttentionSpec | MlpSpec)
    )
    if others:
        return _refusal(model, f"{', '.join(others)} layers")
    if not all(_is_dense(layer) for layer in model.layers):
        return _refusal(model, "layers without both attention and an MLP")
    if model.encoder:
        return _refusal(model, "an encoder")
    if any(tower.counted for tower in model.towers):
        return _refusal(model, f"a tower ({model.towers[0].name})")
    return None


def _is_dense(layer: LayerSpec) -> bool:
    kinds = [type(block) for _, block in layer.blocks]
    return kinds == [AttentionSpec, MlpSpec]


def _refusal(model: ModelSpec, has: str) -> str:
    return f"the memory model covers dense attention models so far; {model.name} has {has}"
