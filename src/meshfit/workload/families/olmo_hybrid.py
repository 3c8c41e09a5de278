"""OLMo Hybrid: three layers of gated delta net, normed before, to one of attention, normed behind."""

from dataclasses import replace

from meshfit.errors import InputError
from meshfit.workload.blocks.linear import GatedDeltaNetSpec
from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.keys import (
    MAX_HEADS,
    Config,
    optional_whole_number,
    whole_number,
)
from meshfit.workload.families.linear_kinds import (
    FULL,
    LINEAR,
    attention_kinds,
    check_delta_heads,
    every_nth_full,
)
from meshfit.workload.families.mamba import MAX_KERNEL
from meshfit.workload.families.olmo import OLMO2
from meshfit.workload.model import LLAMA_NORMS, ModelSpec

ATTENTION = replace(
    OLMO2,
    model_type="olmo_hybrid",
    defaults=DecoderSizes(
        vocab_size=100352,
        hidden_size=3840,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=30,
        max_position_embeddings=65536,
    ),
)


def read(name: str, config: Config) -> ModelSpec:
    """The model.

    Raises:
        InputError: a key cannot be right, or there is no layer of one kind.
    """
    model = ATTENTION.read(name, config)
    count = model.num_hidden_layers
    usual = every_nth_full(count, 4)
    if FULL not in usual:
        usual[-1] = FULL
    kinds = attention_kinds(config, usual)
    if set(kinds) != {FULL, LINEAR}:
        raise InputError(
            f"all {count} layers have {kinds[0]} attention; olmo_hybrid needs layers of both kinds"
        )
    full = model.layers[0]
    blocks = (("linear_attn", _delta_net(config, model)), full.blocks[1])
    linear = replace(full, blocks=blocks, norms=LLAMA_NORMS)
    return replace(model, layers=tuple(full if kind == FULL else linear for kind in kinds))


def _delta_net(config: Config, model: ModelSpec) -> GatedDeltaNetSpec:
    """A key head is three quarters as wide as hidden size / heads, a value head twice a key head."""
    heads = model.attention.num_attention_heads
    keys = optional_whole_number(config, "linear_num_key_heads", maximum=MAX_HEADS) or heads
    values = optional_whole_number(config, "linear_num_value_heads", maximum=MAX_HEADS) or heads
    key_dim = optional_whole_number(config, "linear_key_head_dim") or max(
        3 * model.hidden_size // (4 * keys), 1
    )
    check_delta_heads(keys, values)
    return GatedDeltaNetSpec(
        num_key_heads=keys,
        num_value_heads=values,
        key_head_dim=key_dim,
        value_head_dim=optional_whole_number(config, "linear_value_head_dim") or 2 * key_dim,
        conv_kernel=whole_number(config, "linear_conv_kernel_dim", 4, maximum=MAX_KERNEL),
    )
