"""Gemma 1 to 3: tied embeddings and a wide head; from Gemma 2 on four norms a layer and windows."""

from dataclasses import replace

from meshfit.errors import InputError
from meshfit.workload.blocks.tensor import linear, norm
from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.keys import Config, flag, mapping, whole_number
from meshfit.workload.families.siglip import siglip_tower
from meshfit.workload.families.sliding import alternating_windows
from meshfit.workload.model import LLAMA_NORMS, ModelSpec

FOUR_NORMS = (*LLAMA_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")

_SIZES_2 = DecoderSizes(
    vocab_size=256000,
    hidden_size=2304,
    intermediate_size=9216,
    num_hidden_layers=26,
    num_attention_heads=8,
    max_position_embeddings=8192,
)

GEMMA = DecoderFamily(
    model_type="gemma",
    defaults=DecoderSizes(
        vocab_size=256000,
        hidden_size=3072,
        intermediate_size=24576,
        num_hidden_layers=28,
        num_attention_heads=16,
        max_position_embeddings=8192,
    ),
    num_key_value_heads=16,
    head_dim=256,
    tie_word_embeddings=True,
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
)
GEMMA2 = DecoderFamily(
    model_type="gemma2",
    defaults=_SIZES_2,
    num_key_value_heads=4,
    head_dim=256,
    tie_word_embeddings=True,
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    norms=FOUR_NORMS,
    windows=alternating_windows(4096, 2),
)
VAULTGEMMA = replace(
    GEMMA2, model_type="vaultgemma", norms=("input_layernorm", "pre_feedforward_layernorm")
)
GEMMA3_TEXT = replace(
    GEMMA2,
    model_type="gemma3_text",
    defaults=replace(_SIZES_2, vocab_size=262208, max_position_embeddings=131072),
    qk_norm=True,
    windows=alternating_windows(4096, 6, pattern_key="sliding_window_pattern"),
)


def read_gemma3(name: str, config: Config) -> ModelSpec:
    """Gemma 3 with its vision tower, whose projection has no bias.

    Raises:
        InputError: the text config is missing, or a key cannot be right.
    """
    text = mapping(config, "text_config")
    if not text:
        raise InputError("text_config is missing; it holds the sizes of the language model")
    model = GEMMA3_TEXT.read(name, text)
    vision = mapping(config, "vision_config")
    width = whole_number(vision, "hidden_size", 768)
    projection = (
        *norm("mm_soft_emb_norm", width),
        *linear("mm_input_projection", width, model.hidden_size),
    )
    tower = siglip_tower(vision, projection=projection)
    return replace(
        model,
        model_type="gemma3",
        tie_word_embeddings=flag(config, "tie_word_embeddings", True),
        towers=(tower,),
        config=config,
    )
