"""Apertus: a plain MLP whose activation (xIELU) has two parameters, norms over heads of q and k."""

from meshfit.workload.blocks.tensor import vector
from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag

APERTUS = DecoderFamily(
    model_type="apertus",
    defaults=DecoderSizes(
        vocab_size=131072,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=65536,
    ),
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    gated=False,
    qk_norm=True,
    norms=("attention_layernorm", "feedforward_layernorm"),
    extra=(vector("mlp.act_fn.alpha_p", 1), vector("mlp.act_fn.alpha_n", 1)),
)
