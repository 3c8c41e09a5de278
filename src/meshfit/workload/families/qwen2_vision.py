"""Qwen2-VL and Qwen2.5-VL: Qwen2 behind a vision tower."""

from dataclasses import replace

from meshfit.workload.blocks.tensor import Tensor, linear, norm
from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily
from meshfit.workload.families.keys import (
    MAX_LAYERS,
    MAX_WIDTH,
    Config,
    flag,
    mapping,
    whole_number,
)
from meshfit.workload.families.sliding import windows_of_layers
from meshfit.workload.model import MlpSpec, ModelSpec, TowerSpec

TEXT_2_5 = DecoderFamily(
    model_type="qwen2_5_vl_text",
    defaults=DecoderSizes(
        vocab_size=152064,
        hidden_size=8192,
        intermediate_size=29568,
        num_hidden_layers=80,
        num_attention_heads=64,
        max_position_embeddings=32768,
    ),
    num_key_value_heads=8,
    reads_head_dim=False,
    qkv_bias=True,
    windows=windows_of_layers,
)
TEXT_2 = replace(TEXT_2_5, model_type="qwen2_vl_text")
OMNI_TEXT = replace(
    TEXT_2_5,
    model_type="qwen2_5_omni_text",
    defaults=DecoderSizes(
        vocab_size=152064,
        hidden_size=3584,
        intermediate_size=18944,
        num_hidden_layers=28,
        num_attention_heads=28,
        max_position_embeddings=32768,
    ),
    num_key_value_heads=4,
)


def read_2(name: str, config: Config) -> ModelSpec:
    """Qwen2-VL with its vision tower; sizes are under ``text_config`` or at the top.

    Raises:
        InputError: a key cannot be right.
    """
    return _read(TEXT_2, name, config, "qwen2_vl")


def read_2_5(name: str, config: Config) -> ModelSpec:
    """Qwen2.5-VL, as ``read_2``. Raises ``InputError`` as there."""
    return _read(TEXT_2_5, name, config, "qwen2_5_vl")


def _read(family: DecoderFamily, name: str, config: Config, model_type: str) -> ModelSpec:
    text = mapping(config, "text_config") or config
    model = family.read(name, text)
    vision = mapping(config, "vision_config")
    tower = _tower_2(vision) if model_type == "qwen2_vl" else _tower_2_5(vision)
    return replace(
        model,
        model_type=model_type,
        tie_word_embeddings=model.tie_word_embeddings or flag(config, "tie_word_embeddings", False),
        towers=(tower,),
        config=config,
    )


def _tower_2(vision: Config) -> TowerSpec:
    """Qwen2-VL: LayerNorms, a plain MLP, output as wide as the config's ``hidden_size``."""
    width = whole_number(vision, "embed_dim", 1280)
    ratio = whole_number(vision, "mlp_ratio", 4, maximum=64)
    mlp = MlpSpec(intermediate_size=min(ratio * width, MAX_WIDTH), gated=False, bias=True)
    output = whole_number(vision, "hidden_size", 3584)
    return _tower(vision, width, mlp, output, norm_vectors=2)


def _tower_2_5(vision: Config) -> TowerSpec:
    """Qwen2.5-VL: RMS norms, a gated MLP."""
    width = whole_number(vision, "hidden_size", 3584)
    inner = whole_number(vision, "intermediate_size", 3420)
    mlp = MlpSpec(intermediate_size=inner, gated=True, bias=True)
    output = whole_number(vision, "out_hidden_size", 3584)
    return _tower(vision, width, mlp, output, norm_vectors=1)


def _tower(
    vision: Config, width: int, mlp: MlpSpec, output: int, *, norm_vectors: int
) -> TowerSpec:
    depth = whole_number(vision, "depth", 32, maximum=MAX_LAYERS)
    patch = whole_number(vision, "patch_size", 14, maximum=2**10)
    frames = whole_number(vision, "temporal_patch_size", 2, maximum=64)
    channels = whole_number(vision, "in_channels", 3, maximum=2**10)
    merged = width * whole_number(vision, "spatial_merge_size", 2, maximum=64) ** 2
    layer: tuple[Tensor, ...] = (
        *norm("norm1", width, vectors=norm_vectors),
        *norm("norm2", width, vectors=norm_vectors),
        *linear("attn.qkv", width, 3 * width, bias=True),
        *linear("attn.proj", width, width, bias=True),
        *mlp.tensors(width),
    )
    return TowerSpec(
        name="vision_config",
        tensors=(
            *linear("patch_embed.proj", channels * frames * patch**2, width),
            *(tensor.repeated(depth) for tensor in layer),
            *norm("merger.ln_q", width, vectors=norm_vectors),
            *linear("merger.mlp.0", merged, merged, bias=True),
            *linear("merger.mlp.2", merged, output, bias=True),
        ),
    )
