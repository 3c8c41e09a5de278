"""The SigLIP vision tower (Gemma 3)."""

from collections.abc import Iterable

from meshfit.errors import InputError
from meshfit.workload.blocks.tensor import Tensor, linear, lookup, norm, vector
from meshfit.workload.families.keys import MAX_LAYERS, Config, flag, whole_number
from meshfit.workload.model import MlpSpec, TowerSpec


def siglip_tower(vision: Config, *, projection: Iterable[Tensor]) -> TowerSpec:
    """The tower of a ``vision_config`` of SigLIP, with its ``projection`` into the language model.

    Raises:
        InputError: a size cannot be right.
    """
    width = whole_number(vision, "hidden_size", 768)
    inner = whole_number(vision, "intermediate_size", 3072)
    depth = whole_number(vision, "num_hidden_layers", 12, maximum=MAX_LAYERS)
    channels = whole_number(vision, "num_channels", 3)
    image, patch = whole_number(vision, "image_size", 224), whole_number(vision, "patch_size", 16)
    if image < patch:
        raise InputError(f"vision_config.image_size {image} is less than patch_size {patch}")
    attention = (
        tensor
        for name in ("q_proj", "k_proj", "v_proj", "out_proj")
        for tensor in linear(name, width, width, bias=True)
    )
    layer = (
        *attention,
        *MlpSpec(intermediate_size=inner, gated=False, bias=True).tensors(width),
        *norm("layer_norm1", width, vectors=2),
        *norm("layer_norm2", width, vectors=2),
    )
    return TowerSpec(
        name="vision_config",
        tensors=(
            *linear("patch_embedding", channels * patch**2, width, bias=True),
            lookup("position_embedding", (image // patch) ** 2, width),
            *(tensor.repeated(depth) for tensor in layer),
            *norm("post_layernorm", width, vectors=2),
            *(_pooling(width, inner) if flag(vision, "vision_use_head", True) else ()),
            *projection,
        ),
    )


def _pooling(width: int, inner: int) -> tuple[Tensor, ...]:
    """A head that pools patches by attention from one learned query (``vision_use_head``)."""
    return (
        vector("head.probe", width),
        *linear("head.attention.in_proj", width, 3 * width, bias=True),
        *linear("head.attention.out_proj", width, width, bias=True),
        *norm("head.layernorm", width, vectors=2),
        *MlpSpec(intermediate_size=inner, gated=False, bias=True).tensors(width),
    )
