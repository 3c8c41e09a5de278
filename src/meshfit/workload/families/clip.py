"""The CLIP vision tower (LLaVA), and the one derived from it in MiniMax M3."""

from meshfit.errors import InputError
from meshfit.workload.blocks.tensor import Tensor, linear, lookup, norm, vector
from meshfit.workload.families.keys import MAX_LAYERS, Config, mapping, whole_number
from meshfit.workload.model import MlpSpec, TowerSpec


def encoder_layers(width: int, inner: int, depth: int) -> tuple[Tensor, ...]:
    """``depth`` layers as CLIP and SigLIP have them: two LayerNorms, a plain MLP, biases."""
    layer = (
        *(
            tensor
            for name in ("q_proj", "k_proj", "v_proj", "out_proj")
            for tensor in linear(name, width, width, bias=True)
        ),
        *MlpSpec(intermediate_size=inner, gated=False, bias=True).tensors(width),
        *norm("layer_norm1", width, vectors=2),
        *norm("layer_norm2", width, vectors=2),
    )
    return tuple(tensor.repeated(depth) for tensor in layer)


def patches_of(vision: Config, image: int, patch: int) -> tuple[int, int]:
    """Patches of an image, and the size of one in pixels (a side).

    Raises:
        InputError: the image is smaller than one patch.
    """
    image_size = whole_number(vision, "image_size", image)
    patch_size = whole_number(vision, "patch_size", patch)
    if image_size < patch_size:
        raise InputError(
            f"vision_config.image_size {image_size} is less than patch_size {patch_size}"
        )
    return (image_size // patch_size) ** 2, patch_size


def clip_tower(vision: Config, projection: tuple[Tensor, ...]) -> TowerSpec:
    """The tower of a ``vision_config`` of CLIP, with its ``projection`` into the language model.

    Raises:
        InputError: a size cannot be right.
    """
    width = whole_number(vision, "hidden_size", 768)
    inner = whole_number(vision, "intermediate_size", 3072)
    depth = whole_number(vision, "num_hidden_layers", 12, maximum=MAX_LAYERS)
    channels = whole_number(vision, "num_channels", 3, maximum=2**10)
    patches, patch = patches_of(vision, 224, 32)
    return TowerSpec(
        name="vision_config",
        tensors=(
            vector("class_embedding", width),
            *linear("patch_embedding", channels * patch**2, width),
            lookup("position_embedding", patches + 1, width),
            *norm("pre_layrnorm", width, vectors=2),
            *encoder_layers(width, inner, depth),
            *norm("post_layernorm", width, vectors=2),
            *projection,
        ),
    )


def minimax_tower(config: Config, hidden_size: int) -> TowerSpec:
    """MiniMax M3's: no class token, no learned positions, and two projections one behind the other.

    Raises:
        InputError: a size cannot be right.
    """
    vision = mapping(config, "vision_config")
    width = whole_number(vision, "hidden_size", 1280)
    inner = whole_number(vision, "intermediate_size", 5120)
    depth = whole_number(vision, "num_hidden_layers", 32, maximum=MAX_LAYERS)
    channels = whole_number(vision, "num_channels", 3, maximum=2**10)
    patch = whole_number(vision, "patch_size", 14, maximum=2**10)
    frames = whole_number(vision, "temporal_patch_size", 2, maximum=64)
    merge = whole_number(vision, "spatial_merge_size", 2, maximum=64)
    middle = whole_number(config, "projector_hidden_size", hidden_size)
    merged = whole_number(config, "merged_hidden_size", hidden_size * merge**2, maximum=2**24)
    return TowerSpec(
        name="vision_config",
        tensors=(
            *linear("embeddings.proj", channels * frames * patch**2, width),
            *norm("pre_layrnorm", width, vectors=2),
            *encoder_layers(width, inner, depth),
            *linear("projector.linear_1", width, middle, bias=True),
            *linear("projector.linear_2", middle, hidden_size, bias=True),
            *linear("projector.merge_linear_1", merged, middle, bias=True),
            *linear("projector.merge_linear_2", middle, hidden_size, bias=True),
        ),
    )
