"""DeepSeek V4: a sliding window beside compressed keys, hyper-connections around every block."""

from collections.abc import Sequence

from meshfit.errors import InputError
from meshfit.workload.blocks.compressed import CompressedAttentionSpec, CompressionSpec
from meshfit.workload.blocks.latent import IndexerSpec
from meshfit.workload.blocks.tensor import Tensor, linear, vector
from meshfit.workload.families.decoder import DecoderSizes, decoder_sizes
from meshfit.workload.families.experts import Experts
from meshfit.workload.families.family import Flag
from meshfit.workload.families.keys import (
    MAX_HEADS,
    MAX_LAYERS,
    MAX_TOKENS,
    Config,
    flag,
    layer_kinds,
    mapping,
    probability,
    shown,
    whole_number,
    with_own_names,
)
from meshfit.workload.model import LayerSpec, ModelSpec

DEFAULTS = DecoderSizes(
    vocab_size=129280,
    hidden_size=4096,
    intermediate_size=2048,
    num_hidden_layers=43,
    num_attention_heads=64,
    max_position_embeddings=1048576,
)
"""Of transformers' ``DeepseekV4Config``; it has no dense MLP."""

EXPERTS = Experts(
    total=("n_routed_experts", 256),
    chosen=("num_experts_per_tok", 6),
    width=("moe_intermediate_size", 2048),
    shared_width=("moe_intermediate_size", 2048),
    shared_bias=Flag(key="mlp_bias"),
)

_SYNONYMS = {
    "num_local_experts": "n_routed_experts",
    "intermediate_size": "moe_intermediate_size",
}

SLIDING = "sliding_attention"
SPARSE = "compressed_sparse_attention"
HEAVY = "heavily_compressed_attention"
_KIND_OF_RATIO = {0: SLIDING, 4: SPARSE, 128: HEAVY}
_STRIDES = {SPARSE: 4, HEAVY: 128}


def read(name: str, config: Config) -> ModelSpec:
    """The model.

    Raises:
        InputError: a key cannot be right, or ``num_key_value_heads`` is not 1.
    """
    own = with_own_names(config, _SYNONYMS)
    sizes = decoder_sizes(own, DEFAULTS)
    if (kv_heads := whole_number(own, "num_key_value_heads", 1, maximum=MAX_HEADS)) != 1:
        raise InputError(f"num_key_value_heads is {kv_heads}; deepseek_v4 has one for all heads")
    if (shared := whole_number(own, "n_shared_experts", 1, minimum=0)) != 1:
        raise InputError(f"n_shared_experts is {shared}; transformers' deepseek_v4 has one")
    streams = whole_number(own, "hc_mult", 4, maximum=2**10)
    moe = EXPERTS.read(own)
    kinds = _layer_kinds(own, sizes.num_hidden_layers)
    layer_of = {
        kind: LayerSpec(
            blocks=(("self_attn", _attention(own, sizes, kind)), ("mlp", moe)),
            extra=(
                *_hyper_connection("attn_hc", sizes.hidden_size, streams),
                *_hyper_connection("ffn_hc", sizes.hidden_size, streams),
            ),
        )
        for kind in set(kinds)
    }
    depth = whole_number(own, "num_nextn_predict_layers", 1, minimum=0, maximum=MAX_LAYERS)
    return ModelSpec(
        name=name,
        model_type="deepseek_v4",
        hidden_size=sizes.hidden_size,
        vocab_size=sizes.vocab_size,
        layers=tuple(layer_of[kind] for kind in kinds),
        norm="rms_norm",
        tie_word_embeddings=flag(own, "tie_word_embeddings", False),
        max_position_embeddings=sizes.max_position_embeddings,
        dropout=probability(own, "attention_dropout", 0.0),
        extra=(
            *linear("hc_head.hc_fn", streams * sizes.hidden_size, streams, role="router"),
            vector("hc_head.hc_base", streams),
            vector("hc_head.hc_scale", 1),
        ),
        mtp_unknown=(
            f"num_nextn_predict_layers is {depth}; transformers has no code of these heads"
            if depth
            else ""
        ),
        config=config,
    )


def _attention(config: Config, sizes: DecoderSizes, kind: str) -> CompressedAttentionSpec:
    heads, groups = sizes.num_attention_heads, whole_number(config, "o_groups", 8)
    head_dim = whole_number(config, "head_dim", 512)
    if heads * head_dim % groups:
        raise InputError(
            f"o_groups {groups} does not divide num_attention_heads {heads} x head_dim {head_dim}"
        )
    return CompressedAttentionSpec(
        num_attention_heads=heads,
        head_dim=head_dim,
        q_lora_rank=whole_number(config, "q_lora_rank", 1024),
        output_groups=groups,
        output_rank=whole_number(config, "o_lora_rank", 1024),
        sliding_window=whole_number(config, "sliding_window", 128, maximum=MAX_TOKENS),
        compression=_compression(config, kind),
    )


def _compression(config: Config, kind: str) -> CompressionSpec | None:
    if kind == SLIDING:
        return None
    rates = {**_STRIDES, **mapping(config, "compress_rates")}
    stride = whole_number(rates, kind, _STRIDES[kind], maximum=MAX_TOKENS)
    if kind == HEAVY:
        return CompressionSpec(stride=stride)
    indexer = IndexerSpec(
        num_heads=whole_number(config, "index_n_heads", 64, maximum=MAX_HEADS),
        head_dim=whole_number(config, "index_head_dim", 128),
        top_k=whole_number(config, "index_topk", 512, maximum=MAX_TOKENS),
    )
    return CompressionSpec(stride=stride, indexer=indexer)


def _layer_kinds(config: Config, num_hidden_layers: int) -> Sequence[str]:
    """By ``layer_types``, else by ``compress_ratios`` (0, 4, 128; entries beyond the layers belong
    to heads for multi-token prediction), else two heavy layers and then both in turn."""
    ratios = config.get("compress_ratios")
    if ratios is None:
        later = [SPARSE if i % 2 else HEAVY for i in range(num_hidden_layers - 2)]
        usual = [HEAVY] * min(num_hidden_layers, 2) + later
    elif (
        not isinstance(ratios, list)
        or not all(isinstance(ratio, int) and ratio in _KIND_OF_RATIO for ratio in ratios)
        or len(ratios) < num_hidden_layers
    ):
        raise InputError(
            f"compress_ratios is {shown(ratios)}; expected a list of 0, 4 and 128 for each of"
            f" {num_hidden_layers} hidden layers"
        )
    else:
        usual = [_KIND_OF_RATIO[ratio] for ratio in ratios[:num_hidden_layers]]
    allowed = {kind: kind for kind in (SLIDING, SPARSE, HEAVY)}
    return layer_kinds(config, num_hidden_layers, allowed, usual)


def _hyper_connection(name: str, hidden_size: int, streams: int) -> tuple[Tensor, ...]:
    """Maps ``streams`` residual streams to the weights that mix them in and out of a block."""
    mixes = (2 + streams) * streams
    return (
        *linear(f"{name}.fn", streams * hidden_size, mixes, role="router"),
        vector(f"{name}.base", mixes),
        vector(f"{name}.scale", 3),
    )
