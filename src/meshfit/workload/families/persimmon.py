"""Persimmon: LayerNorms, biases, a plain MLP, norms with bias over heads of q and k."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.model import Names

PERSIMMON = DecoderFamily(
    model_type="persimmon",
    defaults=DecoderSizes(
        vocab_size=262144,
        hidden_size=4096,
        intermediate_size=16384,
        num_hidden_layers=36,
        num_attention_heads=64,
        max_position_embeddings=16384,
    ),
    reads_grouping=False,
    reads_head_dim=False,
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    gated=False,
    qk_norm=Flag(key="qk_layernorm", default=True),
    qk_norm_vectors=2,
    norm="layer_norm",
    dropouts=("attention_dropout", "hidden_dropout"),
    names=Names(final_norm="model.final_layernorm"),
)
