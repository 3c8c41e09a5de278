"""StableLM: LayerNorms, optional norms over every head of q and k, an optional parallel residual."""

from dataclasses import replace

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.keys import Config, flag
from meshfit.workload.model import ModelSpec

STABLELM = DecoderFamily(
    model_type="stablelm",
    defaults=DecoderSizes(
        vocab_size=50304,
        hidden_size=2560,
        intermediate_size=6912,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=4096,
    ),
    num_key_value_heads=32,
    reads_head_dim=False,
    qkv_bias=Flag(key="use_qkv_bias"),
    qk_norm=Flag(key="qk_layernorm"),
    qk_norm_over="all_heads",
    norm="layer_norm",
    parallel=Flag(key="use_parallel_residual"),
    dropouts=("attention_dropout", "hidden_dropout"),
)


def read(name: str, config: Config) -> ModelSpec:
    """The model; with a parallel residual a layer has one norm.

    Raises:
        InputError: a key cannot be right.
    """
    family = STABLELM
    if flag(config, "use_parallel_residual", False):
        family = replace(family, norms=("input_layernorm",))
    return family.read(name, config)
