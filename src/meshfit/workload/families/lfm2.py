"""LFM2: short convolutions in most layers, attention in the others; dense and with experts."""

from collections.abc import Sequence

from meshfit.errors import InputError
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.convolution import ShortConvolutionSpec
from meshfit.workload.families.decoder import DecoderSizes, decoder_sizes, grouped_query_attention
from meshfit.workload.families.experts import Experts
from meshfit.workload.families.keys import (
    MAX_LAYERS,
    MAX_WIDTH,
    Config,
    flag,
    index_list,
    layer_kinds,
    optional_whole_number,
    shown,
    whole_number,
    with_own_names,
)
from meshfit.workload.families.mamba import MAX_KERNEL
from meshfit.workload.model import LayerSpec, MlpSpec, ModelSpec, Names, equal_as_one

_KINDS = {"full_attention": "attention", "conv": "conv"}
_SYNONYMS = {"tie_embedding": "tie_word_embeddings", "block_ff_dim": "intermediate_size"}

EXPERTS = Experts(
    total=("num_experts", 32),
    chosen=("num_experts_per_tok", 4),
    width=("moe_intermediate_size", 1792),
)


def read(name: str, config: Config) -> ModelSpec:
    """Dense LFM2; without ``layer_types``, ``full_attn_idxs`` lists the layers with attention.

    Raises:
        InputError: a key cannot be right.
    """
    own = with_own_names(config, _SYNONYMS)
    sizes = _sizes(own, hidden_size=2560, intermediate_size=12288)
    layers = sizes.num_hidden_layers
    listed = index_list(own, "full_attn_idxs", layers)
    everywhere = own.get("full_attn_idxs") is None
    usual = ["attention" if everywhere or i in listed else "conv" for i in range(layers)]
    kinds = layer_kinds(own, layers, _KINDS, usual)
    mlp = MlpSpec(intermediate_size=_adjusted(own, sizes.intermediate_size), gated=True)
    return _model(name, own, sizes, kinds, (mlp,) * layers, config=config, model_type="lfm2")


def read_moe(name: str, config: Config) -> ModelSpec:
    """LFM2 with experts behind the first ``num_dense_layers``.

    Raises:
        InputError: ``layer_types`` is missing, or a key cannot be right.
    """
    own = with_own_names(config, _SYNONYMS)
    sizes = _sizes(own, hidden_size=2048, intermediate_size=7168)
    layers = sizes.num_hidden_layers
    if own.get("layer_types") is None:
        raise InputError("layer_types is missing; lfm2_moe has no default for it")
    kinds = layer_kinds(own, layers, _KINDS, ())
    dense = whole_number(own, "num_dense_layers", 2, minimum=0, maximum=MAX_LAYERS)
    mlp: Block = MlpSpec(intermediate_size=sizes.intermediate_size, gated=True)
    moe: Block = EXPERTS.read(own)
    blocks = [mlp if i < dense else moe for i in range(layers)]
    return _model(name, own, sizes, kinds, blocks, config=config, model_type="lfm2_moe")


def _sizes(config: Config, *, hidden_size: int, intermediate_size: int) -> DecoderSizes:
    defaults = DecoderSizes(
        vocab_size=65536,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=128000,
    )
    return decoder_sizes(config, defaults)


def _adjusted(config: Config, intermediate_size: int) -> int:
    """The inner size that ``block_auto_adjust_ff_dim`` makes: two thirds, times a factor, rounded
    up to a multiple."""
    if not flag(config, "block_auto_adjust_ff_dim", True):
        return intermediate_size
    inner = int(2 * intermediate_size / 3)
    factor = config.get("block_ffn_dim_multiplier", 1.0)
    if factor is None:
        return inner
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= 64:
        raise InputError(f"block_ffn_dim_multiplier is {shown(factor)}; expected a factor")
    multiple = whole_number(config, "block_multiple_of", 256)
    width = multiple * -(-int(factor * inner) // multiple)
    if not 0 < width <= MAX_WIDTH:
        raise InputError(f"intermediate_size {intermediate_size} is adjusted to {width}")
    return width


def _model(
    name: str,
    own: Config,
    sizes: DecoderSizes,
    kinds: Sequence[str],
    feed_forwards: Sequence[Block],
    *,
    config: Config,
    model_type: str,
) -> ModelSpec:
    mixers = {
        "attention": ("self_attn", _attention(own, sizes)),
        "conv": ("conv", _convolution(own, sizes)),
    }
    layers = [
        LayerSpec(
            blocks=(mixers[kind], ("feed_forward", block)), norms=("operator_norm", "ffn_norm")
        )
        for kind, block in zip(kinds, feed_forwards, strict=True)
    ]
    return ModelSpec(
        name=name,
        model_type=model_type,
        hidden_size=sizes.hidden_size,
        vocab_size=sizes.vocab_size,
        layers=equal_as_one(layers),
        norm="rms_norm",
        tie_word_embeddings=flag(own, "tie_word_embeddings", True),
        max_position_embeddings=sizes.max_position_embeddings,
        names=Names(final_norm="model.embedding_norm"),
        config=config,
    )


def _attention(config: Config, sizes: DecoderSizes) -> Block:
    return grouped_query_attention(
        sizes,
        num_key_value_heads=optional_whole_number(config, "num_key_value_heads", 8)
        or sizes.num_attention_heads,
        head_dim=optional_whole_number(config, "head_dim"),
        qk_norm=True,
    )


def _convolution(config: Config, sizes: DecoderSizes) -> Block:
    return ShortConvolutionSpec(
        kernel=whole_number(config, "conv_L_cache", 3, maximum=MAX_KERNEL),
        width=sizes.hidden_size,
        bias=flag(config, "conv_bias", False),
    )
