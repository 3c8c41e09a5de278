"""ERNIE 4.5: one bias switch for all linear maps, tied embeddings; dense and with experts."""

from collections.abc import Sequence

from meshfit.errors import InputError
from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, feed_forwards
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.keys import MAX_LAYERS, Config, flag, whole_number
from meshfit.workload.model import ModelSpec

_BIAS = Flag(key="use_bias")

ERNIE4_5 = DecoderFamily(
    model_type="ernie4_5",
    defaults=DecoderSizes(
        vocab_size=103424,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=18,
        num_attention_heads=16,
        max_position_embeddings=131072,
    ),
    num_key_value_heads=2,
    head_dim=128,
    tie_word_embeddings=True,
    qkv_bias=_BIAS,
    output_bias=_BIAS,
    mlp_bias=_BIAS,
)


def _moe_layers(config: Config, num_hidden_layers: int) -> Sequence[bool]:
    """Every ``moe_layer_interval``-th layer from ``moe_layer_start_index`` to ``..._end_index``."""
    every = whole_number(config, "moe_layer_interval", 1, maximum=MAX_LAYERS)
    first = whole_number(config, "moe_layer_start_index", 1, minimum=0, maximum=MAX_LAYERS)
    last = whole_number(config, "moe_layer_end_index", -1, minimum=-1, maximum=MAX_LAYERS)
    last = num_hidden_layers - 1 if last == -1 else last
    return [(i + 1) % every == 0 and first <= i <= last for i in range(num_hidden_layers)]


ERNIE4_5_MOE = DecoderFamily(
    model_type="ernie4_5_moe",
    defaults=DecoderSizes(
        vocab_size=103424,
        hidden_size=2560,
        intermediate_size=12288,
        num_hidden_layers=28,
        num_attention_heads=20,
        max_position_embeddings=131072,
    ),
    num_key_value_heads=4,
    tie_word_embeddings=True,
    feed_forwards=feed_forwards(
        Experts(
            total=("moe_num_experts", 64),
            chosen=("moe_k", 6),
            width=("moe_intermediate_size", 1536),
            shared_count=("moe_num_shared_experts", 2),
            balance_bias=True,
        ),
        _moe_layers,
    ),
    synonyms={"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"},
)


def read_moe(name: str, config: Config) -> ModelSpec:
    """ERNIE 4.5 with experts.

    Raises:
        InputError: a key cannot be right, or ``use_bias`` is true, whose experts cannot be read.
    """
    if flag(config, "use_bias", False):
        raise InputError("use_bias is true; ernie4_5_moe is read without biases only")
    return ERNIE4_5_MOE.read(name, config)
