"""GLM-4.5 and others of its kind (Solar Open, dots.llm1): grouped-query attention with experts."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, after_first, every_layer, feed_forwards
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.keys import Config
from meshfit.workload.families.mtp import with_mtp
from meshfit.workload.families.sliding import late_windows
from meshfit.workload.model import ModelSpec

_NAMES = {"num_local_experts": "n_routed_experts", "num_experts": "n_routed_experts"}

GLM4_MOE = DecoderFamily(
    model_type="glm4_moe",
    defaults=DecoderSizes(
        vocab_size=151552,
        hidden_size=4096,
        intermediate_size=10944,
        num_hidden_layers=46,
        num_attention_heads=96,
        max_position_embeddings=131072,
    ),
    num_key_value_heads=8,
    floors_head_dim=True,
    qkv_bias=Flag(key="attention_bias"),
    qk_norm=Flag(key="use_qk_norm"),
    feed_forwards=feed_forwards(
        Experts(
            total=("n_routed_experts", 128),
            chosen=("num_experts_per_tok", 8),
            width=("moe_intermediate_size", 1408),
            shared_count=("n_shared_experts", 1),
        ),
        after_first(1),
    ),
    synonyms=_NAMES,
)
DOTS1 = DecoderFamily(
    model_type="dots1",
    defaults=DecoderSizes(
        vocab_size=152064,
        hidden_size=4608,
        intermediate_size=10944,
        num_hidden_layers=62,
        num_attention_heads=32,
        max_position_embeddings=2048,
    ),
    num_key_value_heads=32,
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    qk_norm=True,
    windows=late_windows(4096, 62),
    feed_forwards=feed_forwards(
        Experts(
            total=("n_routed_experts", 0),
            chosen=("num_experts_per_tok", 0),
            width=("moe_intermediate_size", 1408),
            shared_count=("n_shared_experts", 0),
        ),
        after_first(0),
    ),
    synonyms=_NAMES,
)
SOLAR_OPEN = DecoderFamily(
    model_type="solar_open",
    defaults=DecoderSizes(
        vocab_size=196608,
        hidden_size=4096,
        intermediate_size=10240,
        num_hidden_layers=48,
        num_attention_heads=64,
        max_position_embeddings=131072,
    ),
    num_key_value_heads=8,
    head_dim=128,
    qkv_bias=Flag(key="attention_bias"),
    feed_forwards=feed_forwards(
        Experts(
            total=("n_routed_experts", 128),
            chosen=("num_experts_per_tok", 8),
            width=("moe_intermediate_size", 1280),
            shared_count=("n_shared_experts", 1),
        ),
        every_layer,
    ),
    synonyms=_NAMES,
)
SARVAM = DecoderFamily(
    model_type="sarvam_moe",
    defaults=DecoderSizes(
        vocab_size=262144,
        hidden_size=4096,
        intermediate_size=8192,
        num_hidden_layers=19,
        num_attention_heads=64,
        max_position_embeddings=131072,
    ),
    num_key_value_heads=4,
    floors_head_dim=True,
    qkv_bias=Flag(key="attention_bias"),
    qk_norm=Flag(key="use_qk_norm", default=True),
    feed_forwards=feed_forwards(
        Experts(
            total=("n_routed_experts", 128),
            chosen=("num_experts_per_tok", 6),
            width=("moe_intermediate_size", 1024),
            shared_count=("n_shared_experts", 1),
        ),
        after_first(1),
    ),
    synonyms=_NAMES,
)


def read_glm4_moe(name: str, config: Config) -> ModelSpec:
    """GLM-4.5 to 4.7 with their heads for multi-token prediction.

    Raises:
        InputError: a key cannot be right.
    """
    return with_mtp(GLM4_MOE.read(name, config), config, "num_nextn_predict_layers")
