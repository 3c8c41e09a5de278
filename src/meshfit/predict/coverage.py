"""Which models the memory and time model covers; any other is refused, never estimated wrongly."""

from meshfit.errors import InputError
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.feed_forward import MlpSpec
from meshfit.workload.model import LayerSpec, ModelSpec


def require_covered(model: ModelSpec) -> None:
    """Does nothing for a decoder whose layers are softmax attention and a dense MLP.

    Raises:
        InputError: the model has other blocks, an encoder or a tower.
    """
    others = dict.fromkeys(
        f"{name} {type(block).__name__.removesuffix('Spec')}"
        for layer in model.layers
        for name, block in layer.blocks
        if not isinstance(block, AttentionSpec | MlpSpec)
    )
    if others:
        raise InputError(_refusal(model, f"{', '.join(others)} layers"))
    if not all(_is_dense(layer) for layer in model.layers):
        raise InputError(_refusal(model, "layers without both attention and an MLP"))
    if model.encoder:
        raise InputError(_refusal(model, "an encoder"))
    if any(tower.counted for tower in model.towers):
        raise InputError(_refusal(model, f"a tower ({model.towers[0].name})"))


def _is_dense(layer: LayerSpec) -> bool:
    kinds = [type(block) for _, block in layer.blocks]
    return kinds == [AttentionSpec, MlpSpec]


def _refusal(model: ModelSpec, has: str) -> str:
    return f"the memory model covers dense attention models so far; {model.name} has {has}"
