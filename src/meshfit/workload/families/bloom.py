"""BLOOM: ALiBi instead of positions, a norm over the embeddings."""

from dataclasses import replace

from meshfit.workload.blocks.tensor import norm
from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, four_times_hidden
from meshfit.workload.families.keys import Config
from meshfit.workload.model import ModelSpec, Names

BLOOM = DecoderFamily(
    model_type="bloom",
    defaults=DecoderSizes(
        vocab_size=250880,
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=8,
        max_position_embeddings=2048,
    ),
    reads_grouping=False,
    reads_head_dim=False,
    tie_word_embeddings=True,
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    gated=False,
    norm="layer_norm",
    dropouts=("attention_dropout", "hidden_dropout"),
    names=Names(
        layers="transformer.h",
        embedding="transformer.word_embeddings",
        final_norm="transformer.ln_f",
    ),
    synonyms={"n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
              "n_embed": "hidden_size"},
)  # fmt: skip


def read(name: str, config: Config) -> ModelSpec:
    """The model; its MLP is always four times the hidden size, and its ALiBi knows no end.

    Raises:
        InputError: a key cannot be right.
    """
    model = BLOOM.read(name, four_times_hidden(config, BLOOM))
    extra = norm("transformer.word_embeddings_layernorm", model.hidden_size, vectors=2)
    return replace(model, extra=extra, config=config)
