"""GPT-NeoX and Pythia: LayerNorms, biases, attention and MLP in parallel."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.model import Names

GPT_NEOX = DecoderFamily(
    model_type="gpt_neox",
    defaults=DecoderSizes(
        vocab_size=50432,
        hidden_size=6144,
        intermediate_size=24576,
        num_hidden_layers=44,
        num_attention_heads=64,
        max_position_embeddings=2048,
    ),
    reads_grouping=False,
    reads_head_dim=False,
    qkv_bias=Flag(key="attention_bias", default=True),
    output_bias=Flag(key="attention_bias", default=True),
    mlp_bias=True,
    gated=False,
    norm="layer_norm",
    parallel=Flag(key="use_parallel_residual", default=True),
    dropouts=("attention_dropout", "hidden_dropout"),
    names=Names(
        layers="gpt_neox.layers",
        embedding="gpt_neox.embed_in",
        final_norm="gpt_neox.final_layer_norm",
    ),
)
