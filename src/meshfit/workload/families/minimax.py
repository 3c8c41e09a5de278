"""MiniMax-01, M2 and M3: experts everywhere; lightning attention in 01, chosen blocks in M3."""

from collections.abc import Sequence
from dataclasses import replace

from meshfit.errors import InputError
from meshfit.workload.blocks.attention import BlockSelectionSpec
from meshfit.workload.blocks.linear import LightningAttentionSpec
from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, every_layer, feed_forwards
from meshfit.workload.families.family import DecoderFamily
from meshfit.workload.families.keys import (
    MAX_HEADS,
    MAX_LAYERS,
    MAX_TOKENS,
    Config,
    layer_kinds,
    mapping,
    optional_whole_number,
    shown,
    whole_number,
)
from meshfit.workload.families.linear_kinds import FULL, LINEAR, attention_kinds
from meshfit.workload.families.sliding import one_window
from meshfit.workload.model import LayerSpec, ModelSpec, equal_as_one

_NAMES = {"num_experts": "num_local_experts"}
_MLP_KINDS = {"dense": "dense", "sparse": "sparse"}
_ATTENTION_KINDS = {"full_attention": "full", "minimax_m3_sparse": "sparse"}

TEXT_01 = DecoderFamily(
    model_type="minimax",
    defaults=DecoderSizes(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=131072,
    ),
    num_key_value_heads=8,
    windows=one_window(None),
    feed_forwards=feed_forwards(
        Experts(
            total=("num_local_experts", 8),
            chosen=("num_experts_per_tok", 2),
            width=("intermediate_size", 14336),
        ),
        every_layer,
    ),
    synonyms=_NAMES,
)


def read_01(name: str, config: Config) -> ModelSpec:
    """MiniMax-01: softmax attention in every other layer, lightning attention in the rest.

    Raises:
        InputError: a key cannot be right.
    """
    model = TEXT_01.read(name, config)
    layer = model.layers[0]
    softmax = layer.attention
    lightning = LightningAttentionSpec(
        num_heads=softmax.num_attention_heads, head_dim=softmax.head_dim
    )
    linear = replace(layer, blocks=(("self_attn", lightning), layer.blocks[1]))
    usual = [LINEAR if i % 2 else FULL for i in range(model.num_hidden_layers)]
    kinds = attention_kinds(config, usual)
    return replace(model, layers=tuple(layer if kind == FULL else linear for kind in kinds))


M2 = DecoderFamily(
    model_type="minimax_m2",
    defaults=DecoderSizes(
        vocab_size=200064,
        hidden_size=3072,
        intermediate_size=1536,
        num_hidden_layers=62,
        num_attention_heads=48,
        max_position_embeddings=196608,
    ),
    num_key_value_heads=8,
    head_dim=128,
    qk_norm=True,
    qk_norm_over="all_heads",
    feed_forwards=feed_forwards(
        Experts(
            total=("num_local_experts", 256),
            chosen=("num_experts_per_tok", 8),
            width=("intermediate_size", 1536),
        ),
        every_layer,
    ),
    synonyms=_NAMES,
)


def _sparse_layers(config: Config, num_hidden_layers: int) -> Sequence[bool]:
    """By ``mlp_layer_types``, else by ``moe_layer_freq``, else all; ``first_k_dense_replace`` may
    only say the same."""
    usual = _by_list(config, "moe_layer_freq", num_hidden_layers, "dense", "sparse")
    kinds = layer_kinds(config, num_hidden_layers, _MLP_KINDS, usual, key="mlp_layer_types")
    sparse = [kind == "sparse" for kind in kinds]
    first = optional_whole_number(config, "first_k_dense_replace", minimum=0, maximum=MAX_LAYERS)
    if first is not None and [i >= first for i in range(num_hidden_layers)] != sparse:
        raise InputError(
            f"first_k_dense_replace is {first}, but {sparse.count(False)} of the layers"
            " listed are dense"
        )
    return sparse


def _by_list(
    config: Config, key: str, num_hidden_layers: int, zero: str, one: str, *, default: int = 1
) -> list[str]:
    """``zero`` or ``one`` for every layer, as a list of 0 and 1 under ``key`` says."""
    value = config.get(key)
    if value is None:
        return [one if default else zero] * num_hidden_layers
    if (
        not isinstance(value, list)
        or len(value) != num_hidden_layers
        or not all(isinstance(entry, int) and entry in (0, 1) for entry in value)
    ):
        raise InputError(
            f"{key} is {shown(value)}; expected one 0 or 1 for each of"
            f" {num_hidden_layers} hidden layers"
        )
    return [one if entry else zero for entry in value]


M3 = DecoderFamily(
    model_type="minimax_m3",
    defaults=DecoderSizes(
        vocab_size=200064,
        hidden_size=6144,
        intermediate_size=3072,
        num_hidden_layers=60,
        num_attention_heads=64,
        max_position_embeddings=524288,
    ),
    num_key_value_heads=4,
    head_dim=128,
    qk_norm=True,
    feed_forwards=feed_forwards(
        Experts(
            total=("num_local_experts", 128),
            chosen=("num_experts_per_tok", 4),
            width=("intermediate_size", 3072),
            shared_width=("shared_intermediate_size", 3072),
        ),
        _sparse_layers,
    ),
    synonyms=_NAMES,
)


def read_m3(name: str, config: Config) -> ModelSpec:
    """MiniMax M3, whose dense layers have ``dense_intermediate_size``.

    Raises:
        InputError: a key cannot be right, or states a variant that transformers has no code of.
    """
    _refuse_variants(config)
    model = M3.read(name, config)
    dense = whole_number(config, "dense_intermediate_size", 12288)
    selection, sparse = _selection(config), _sparse_attention(config, model.num_hidden_layers)
    layers = [
        _m3_layer(layer, dense, selection if is_sparse else None)
        for layer, is_sparse in zip(model.layers, sparse, strict=True)
    ]
    depth = whole_number(
        config, "num_nextn_predict_layers", 0, minimum=0, maximum=MAX_LAYERS
    ) or whole_number(config, "num_mtp_modules", 0, minimum=0, maximum=MAX_LAYERS)
    unknown = "transformers has no code of M3's heads for multi-token prediction" if depth else ""
    return replace(model, layers=equal_as_one(layers), mtp_unknown=unknown)


def _m3_layer(layer: LayerSpec, dense: int, selection: BlockSelectionSpec | None) -> LayerSpec:
    attention = replace(layer.attention, selection=selection)
    feed_forward = layer.moe or replace(layer.mlp, intermediate_size=dense)
    return replace(layer, blocks=(("self_attn", attention), ("mlp", feed_forward)))


def _selection(config: Config) -> BlockSelectionSpec:
    """Sizes of the indexer, under ``sparse_attention_config`` or in the config itself."""
    sparse = mapping(config, "sparse_attention_config")

    def size(key: str, nested: str, default: int, maximum: int) -> int:
        if nested in sparse:
            return whole_number(sparse, nested, default, maximum=maximum)
        return whole_number(config, key, default, maximum=maximum)

    return BlockSelectionSpec(
        num_heads=size("index_n_heads", "sparse_num_index_heads", 4, MAX_HEADS),
        head_dim=size("index_head_dim", "sparse_index_dim", 128, 2**16),
        block_size=size("index_block_size", "sparse_block_size", 128, MAX_TOKENS),
        num_blocks=size("index_topk_blocks", "sparse_topk_blocks", 16, MAX_TOKENS),
    )


def _sparse_attention(config: Config, num_hidden_layers: int) -> list[bool]:
    sparse = mapping(config, "sparse_attention_config")
    usual = _by_list(
        sparse, "sparse_attention_freq", num_hidden_layers, "full", "sparse", default=0
    )
    kinds = layer_kinds(config, num_hidden_layers, _ATTENTION_KINDS, usual)
    return [kind == "sparse" for kind in kinds]


def _refuse_variants(config: Config) -> None:
    """Refuses what would add or take parameters in a way that is not known."""
    width = config.get("intermediate_size", M3.defaults.intermediate_size)
    expected = {
        "use_qk_norm": (True, config),
        "qk_norm_type": ("per_head", config),
        "n_shared_experts": (1, config),
        "moe_intermediate_size": (width, config),
    }
    sparse = mapping(config, "sparse_attention_config")
    expected["use_sparse_attention"] = (True, sparse)
    for key, (value, where) in expected.items():
        if where.get(key, value) != value:
            raise InputError(f"{key} is {shown(where[key])}; only {shown(value)} can be read")
    disabled, frequency = (
        sparse.get(key) for key in ("sparse_disable_index_value", "sparse_attention_freq")
    )
    if disabled is not None and disabled != frequency:
        raise InputError(
            "sparse_disable_index_value leaves index values on in a sparse layer; their projection"
            " cannot be read"
        )
