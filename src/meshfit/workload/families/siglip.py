"""The SigLIP vision tower (Gemma 3, PaliGemma)."""

from collections.abc import Iterable

from meshfit.workload.blocks.tensor import Tensor, linear, lookup, norm, vector
from meshfit.workload.families.clip import encoder_layers, patches_of
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
    patches, patch = patches_of(vision, 224, 16)
    return TowerSpec(
        name="vision_config",
        tensors=(
            *linear("patch_embedding", channels * patch**2, width, bias=True),
            lookup("position_embedding", patches, width),
            *encoder_layers(width, inner, depth),
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
