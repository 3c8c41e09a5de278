"""Towers by the ``model_type`` of the config that holds both a tower and a language model.

Their language model is found inside by search; a wrapper that is missing here has its towers named,
but not counted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from meshfit.errors import InputError
from meshfit.workload.blocks.tensor import linear, lookup, norm
from meshfit.workload.families import glm_vision
from meshfit.workload.families.clip import clip_tower, minimax_tower
from meshfit.workload.families.keys import (
    MAX_LAYERS,
    Config,
    are_sizes,
    flag,
    mapping,
    shown,
    whole_number,
    with_own_names,
)
from meshfit.workload.families.siglip import siglip_tower
from meshfit.workload.model import MlpSpec, TowerSpec

TowerReader = Callable[[Config, int], TowerSpec]
"""(config, hidden size of the language model) -> its tower."""

_KIMI_NAMES = {
    "vt_hidden_size": "hidden_size",
    "vt_intermediate_size": "intermediate_size",
    "vt_num_attention_heads": "num_attention_heads",
    "vt_num_hidden_layers": "num_hidden_layers",
    "init_pos_emb_height": "pos_emb_height",
    "init_pos_emb_width": "pos_emb_width",
}


def _llava(config: Config, hidden_size: int) -> TowerSpec:
    """CLIP or SigLIP and a projection of two matrices."""
    vision = mapping(config, "vision_config")
    width = whole_number(vision, "hidden_size", 768)
    bias = flag(config, "multimodal_projector_bias", True)
    projection = (
        *linear("projector.linear_1", width, hidden_size, bias=bias),
        *linear("projector.linear_2", hidden_size, hidden_size, bias=bias),
    )
    kind = vision.get("model_type", "clip_vision_model")
    if kind == "siglip_vision_model":
        return siglip_tower(vision, projection=projection)
    if kind != "clip_vision_model":
        raise InputError(
            f"vision_config.model_type is {shown(kind)}; expected clip_vision_model or"
            " siglip_vision_model"
        )
    layers = config.get("vision_feature_layer", -2)
    if not isinstance(layers, int):
        raise InputError(
            f"vision_feature_layer is {shown(layers)}; only the output of one layer can be read"
        )
    return clip_tower(vision, projection)


def _paligemma(config: Config, hidden_size: int) -> TowerSpec:
    vision = mapping(config, "vision_config")
    width = whole_number(vision, "hidden_size", 768)
    projected = whole_number(config, "projection_dim", 2048)
    return siglip_tower(vision, projection=linear("projector", width, projected, bias=True))


def _kimi(config: Config, hidden_size: int) -> TowerSpec:
    """MoonViT of Kimi K2.5: learned positions in space, none in time, and a merger of patches."""
    vision = with_own_names(mapping(config, "vision_config"), _KIMI_NAMES)
    width = whole_number(vision, "hidden_size", 1152)
    inner = whole_number(vision, "intermediate_size", 4304)
    depth = whole_number(vision, "num_hidden_layers", 27, maximum=MAX_LAYERS)
    patch = whole_number(vision, "patch_size", 14, maximum=2**10)
    rows = whole_number(vision, "pos_emb_height", 64) * whole_number(vision, "pos_emb_width", 64)
    merged = width * _merged_patches(vision)
    normed = whole_number(config, "projection_hidden_size", 1152)
    layer = (
        *norm("norm1", width, vectors=2),
        *norm("norm2", width, vectors=2),
        *linear("attn.qkv", width, 3 * width, bias=True),
        *linear("attn.proj", width, width, bias=True),
        *MlpSpec(intermediate_size=inner, gated=False, bias=True).tensors(width),
    )
    return TowerSpec(
        name="vision_config",
        tensors=(
            *linear("patch_embed.proj", 3 * patch**2, width, bias=True),
            lookup("patch_embed.pos_emb", rows, width),
            *(tensor.repeated(depth) for tensor in layer),
            *norm("final_layernorm", width, vectors=2),
            *norm("projector.pre_norm", normed, vectors=2),
            *linear("projector.in_proj", merged, merged, bias=True),
            *linear("projector.out_proj", merged, hidden_size, bias=True),
        ),
    )


def _merged_patches(vision: Config) -> int:
    """Patches that the merger joins: the product of ``merge_kernel_size``."""
    kernel = vision.get("merge_kernel_size", [2, 2])
    if not are_sizes(kernel, 2, 64):
        raise InputError(f"merge_kernel_size is {shown(kernel)}; expected two sizes from 1 to 64")
    height, width = kernel
    return height * width


@dataclass(frozen=True, kw_only=True)
class Wrapper:
    """A config class that holds a tower and a language model.

    Attributes:
        tied: its default of ``tie_word_embeddings``.
        inner_ties: whether true in the language model's config ties as well; else only the outer
            config counts.
    """

    tower: TowerReader
    tied: bool = False
    inner_ties: bool = True

    def ties(self, config: Config, inner: bool) -> bool:
        """Whether the head is tied, where the language model's config says ``inner``."""
        return flag(config, "tie_word_embeddings", self.tied) or (self.inner_ties and inner)


WRAPPERS: Mapping[str, Wrapper] = {
    "glm46v": Wrapper(tower=glm_vision.vision_tower, inner_ties=False),
    "glm4v": Wrapper(tower=glm_vision.vision_tower),
    "glm4v_moe": Wrapper(tower=glm_vision.vision_tower),
    "kimi_k25": Wrapper(tower=_kimi, tied=True, inner_ties=False),
    "llava": Wrapper(tower=_llava),
    "minimax_m3_vl": Wrapper(tower=minimax_tower),
    "paligemma": Wrapper(tower=_paligemma, tied=True, inner_ties=False),
}
"""``model_type`` -> how to read its tower."""
