"""AFMoE (Arcee Trinity): attention with a gate, four norms a layer, experts behind dense layers."""

from collections.abc import Sequence

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, feed_forwards
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.keys import MAX_LAYERS, Config, whole_number
from meshfit.workload.families.sliding import alternating_windows
from meshfit.workload.model import LLAMA_NORMS


def _sparse(config: Config, num_hidden_layers: int) -> Sequence[bool]:
    dense = whole_number(config, "num_dense_layers", 1, minimum=0, maximum=MAX_LAYERS)
    return [i >= dense for i in range(num_hidden_layers)]


AFMOE = DecoderFamily(
    model_type="afmoe",
    defaults=DecoderSizes(
        vocab_size=200192,
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=32,
        num_attention_heads=16,
        max_position_embeddings=16384,
    ),
    head_dim=128,
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    qk_norm=True,
    output_gate="element",
    norms=(*LLAMA_NORMS, "pre_mlp_layernorm", "post_mlp_layernorm"),
    windows=alternating_windows(1024, 4, pattern_key="global_attn_every_n_layers"),
    feed_forwards=feed_forwards(
        Experts(
            total=("num_experts", 64),
            chosen=("num_experts_per_tok", 6),
            width=("moe_intermediate_size", 1408),
            shared_count=("num_shared_experts", 2),
            balance_bias=True,
        ),
        _sparse,
    ),
    synonyms={"num_local_experts": "num_experts"},
)
