"""GLM-4.1V to 4.6V: GLM 4 or GLM-4.5 behind a vision tower."""

from dataclasses import replace

from meshfit.workload.blocks.tensor import Tensor, linear, lookup, norm
from meshfit.workload.families.clip import patches_of
from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import Flag
from meshfit.workload.families.glm import GLM4
from meshfit.workload.families.glm_moe import GLM4_MOE
from meshfit.workload.families.keys import MAX_LAYERS, Config, flag, mapping, whole_number
from meshfit.workload.model import MlpSpec, TowerSpec

TEXT = replace(
    GLM4,
    model_type="glm4v_text",
    defaults=DecoderSizes(
        vocab_size=151552,
        hidden_size=4096,
        intermediate_size=13696,
        num_hidden_layers=40,
        num_attention_heads=32,
        max_position_embeddings=32768,
    ),
    qkv_bias=True,
    head_dim=None,
    reads_head_dim=False,
)
MOE_TEXT = replace(
    GLM4_MOE,
    model_type="glm4v_moe_text",
    defaults=replace(GLM4_MOE.defaults, vocab_size=151424, max_position_embeddings=65536),
    qkv_bias=Flag(key="attention_bias", default=True),
    qk_norm=False,
)


def vision_tower(config: Config, hidden_size: int) -> TowerSpec:
    """The tower: gated MLPs as wide as its output, one convolution that merges patches, a merger.

    Raises:
        InputError: a size cannot be right.
    """
    vision = mapping(config, "vision_config")
    width = whole_number(vision, "hidden_size", 1536)
    inner = whole_number(vision, "intermediate_size", 13696)
    output = whole_number(vision, "out_hidden_size", 4096)
    depth = whole_number(vision, "depth", 24, maximum=MAX_LAYERS)
    channels = whole_number(vision, "in_channels", 3, maximum=2**10)
    frames = whole_number(vision, "temporal_patch_size", 2, maximum=64)
    merge = whole_number(vision, "spatial_merge_size", 2, maximum=64)
    bias = flag(vision, "attention_bias", False)
    patches, patch = patches_of(vision, 336, 14)
    layer: tuple[Tensor, ...] = (
        *norm("norm1", width),
        *norm("norm2", width),
        *linear("attn.qkv", width, 3 * width, bias=bias),
        *linear("attn.proj", width, width),
        *MlpSpec(intermediate_size=output, gated=True).tensors(width),
    )
    return TowerSpec(
        name="vision_config",
        tensors=(
            lookup("position_embedding", patches, width),
            *linear("patch_embed.proj", channels * frames * patch**2, width, bias=True),
            *(tensor.repeated(depth) for tensor in layer),
            *norm("post_conv_layernorm", width),
            *norm("post_layernorm", width),
            *linear("downsample", width * merge**2, output, bias=True),
            *linear("merger.proj", output, output),
            *norm("merger.post_projection_norm", output, vectors=2),
            *MlpSpec(intermediate_size=inner, gated=True).tensors(output),
        ),
    )
