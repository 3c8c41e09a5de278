"""HyperCLOVA X: Llama with scalar multipliers and, by default, norms behind both blocks."""

from dataclasses import replace

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.keys import Config, flag
from meshfit.workload.model import LLAMA_NORMS, ModelSpec

HYPERCLOVAX = DecoderFamily(
    model_type="hyperclovax",
    defaults=DecoderSizes(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=2048,
    ),
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    mlp_bias=Flag(key="mlp_bias"),
    norms=(*LLAMA_NORMS, "post_norm1", "post_norm2"),
)


def read(name: str, config: Config) -> ModelSpec:
    """The model; ``use_post_norm`` false leaves the norms behind blocks out.

    Raises:
        InputError: a key cannot be right.
    """
    family = HYPERCLOVAX
    if not flag(config, "use_post_norm", True):
        family = replace(family, norms=LLAMA_NORMS)
    return family.read(name, config)
