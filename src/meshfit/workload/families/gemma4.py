"""Gemma 4: wide heads in full layers, keys as values, experts beside the MLP, inputs per layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from meshfit.errors import InputError
from meshfit.workload.blocks.tensor import Tensor, linear, lookup, norm, vector
from meshfit.workload.families.decoder import (
    DecoderSizes,
    decoder_sizes,
    divided_head_dim,
    grouped_query_attention,
)
from meshfit.workload.families.experts import expert_counts
from meshfit.workload.families.gemma import FOUR_NORMS
from meshfit.workload.families.keys import (
    MAX_HEADS,
    MAX_LAYERS,
    MAX_TOKENS,
    MAX_VOCABULARY,
    MAX_WIDTH,
    Config,
    flag,
    layer_kinds,
    mapping,
    optional_whole_number,
    probability,
    shown,
    whole_number,
)
from meshfit.workload.model import (
    AttentionSpec,
    LayerSpec,
    MlpSpec,
    ModelSpec,
    MoeSpec,
    Names,
    TowerSpec,
)

DEFAULTS = DecoderSizes(
    vocab_size=262144,
    hidden_size=2304,
    intermediate_size=9216,
    num_hidden_layers=30,
    num_attention_heads=8,
    max_position_embeddings=131072,
)
"""Of transformers' ``Gemma4TextConfig``."""

FULL, SLIDING = "full_attention", "sliding_attention"
_EXPERT_NORMS = (
    "post_feedforward_layernorm_1",
    "post_feedforward_layernorm_2",
    "pre_feedforward_layernorm_2",
)


_OVERRIDES = ("head_dim", "num_key_value_heads")
"""What ``per_layer_config`` may give a layer."""


@dataclass(frozen=True, kw_only=True)
class _LayerKind:
    attention: str
    shares_cache: bool
    head_dim: int
    num_key_value_heads: int


def read_text(name: str, config: Config) -> ModelSpec:
    """The language model.

    Raises:
        InputError: a key cannot be right, or layers share keys that no earlier layer has.
    """
    sizes = decoder_sizes(config, DEFAULTS)
    kinds = _kinds(config, sizes.num_hidden_layers)
    per_layer = optional_whole_number(config, "hidden_size_per_layer_input", 256, minimum=0) or 0
    layer_of = {kind: _layer(config, sizes, kind, per_layer) for kind in set(kinds)}
    return ModelSpec(
        name=name,
        model_type="gemma4_text",
        hidden_size=sizes.hidden_size,
        vocab_size=sizes.vocab_size,
        layers=tuple(layer_of[kind] for kind in kinds),
        norm="rms_norm",
        tie_word_embeddings=flag(config, "tie_word_embeddings", True),
        max_position_embeddings=sizes.max_position_embeddings,
        extra=_per_layer_inputs(config, sizes, per_layer),
        dropout=probability(config, "attention_dropout", 0.0),
        config=config,
    )


def read(name: str, config: Config) -> ModelSpec:
    """Gemma 4 with its vision and audio towers.

    Raises:
        InputError: the text config is missing, or a key cannot be right.
    """
    text = mapping(config, "text_config")
    if not text:
        raise InputError("text_config is missing; it holds the sizes of the language model")
    model = read_text(name, text)
    towers = []
    if vision := mapping(config, "vision_config"):
        towers.append(_vision_tower(vision, model.hidden_size))
    if audio := mapping(config, "audio_config"):
        towers.append(_audio_tower(audio, model.hidden_size))
    return replace(
        model,
        model_type="gemma4",
        tie_word_embeddings=flag(config, "tie_word_embeddings", True),
        towers=tuple(towers),
        names=Names(
            layers="model.language_model.layers",
            embedding="model.language_model.embed_tokens",
            final_norm="model.language_model.norm",
        ),
        config=config,
    )


def _kinds(config: Config, num_hidden_layers: int) -> Sequence[_LayerKind]:
    """Every sixth layer sees everything, unless ``layer_types`` says otherwise, and so does the
    last; the last ``num_kv_shared_layers`` use keys and values of earlier ones."""
    usual = [FULL if (i + 1) % 6 == 0 else SLIDING for i in range(num_hidden_layers)]
    kinds = list(layer_kinds(config, num_hidden_layers, {k: k for k in (FULL, SLIDING)}, usual))
    kinds[-1] = FULL
    shared = whole_number(config, "num_kv_shared_layers", 0, minimum=0, maximum=MAX_LAYERS)
    first = num_hidden_layers - shared
    if shared and (first < 0 or set(kinds[:first]) != set(kinds)):
        raise InputError(
            f"num_kv_shared_layers is {shared} of {num_hidden_layers} layers; layers of every kind"
            " must come before them, whose keys they share"
        )
    sizes_of = {kind: _head_sizes(config, kind) for kind in set(kinds)}
    overrides = _overrides(config, num_hidden_layers)
    return [
        _LayerKind(
            attention=kind, shares_cache=i >= first, **{**sizes_of[kind], **overrides.get(i, {})}
        )
        for i, kind in enumerate(kinds)
    ]


def _head_sizes(config: Config, kind: str) -> dict[str, int]:
    """``head_dim`` and ``num_key_value_heads``. Full layers have heads of ``global_head_dim``; with
    ``attention_k_eq_v`` their key/value heads may have a number of their own. In a config with
    ``per_layer_config`` that says both instead, as transformers writes it."""
    head_dim = whole_number(config, "head_dim", 256)
    kv_heads = whole_number(config, "num_key_value_heads", 4, maximum=MAX_HEADS)
    if kind == FULL and "per_layer_config" not in config:
        head_dim = whole_number(config, "global_head_dim", 512)
        if flag(config, "attention_k_eq_v", False):
            of_full = optional_whole_number(config, "num_global_key_value_heads", maximum=MAX_HEADS)
            kv_heads = of_full or kv_heads
    return {"head_dim": head_dim, "num_key_value_heads": kv_heads}


def _overrides(config: Config, num_hidden_layers: int) -> Mapping[int, Mapping[str, int]]:
    """Layer number -> sizes that ``per_layer_config`` gives it (keys are written ``"05"``)."""
    stated = mapping(config, "per_layer_config")
    found = {}
    for key, sizes in stated.items():
        known = isinstance(sizes, Mapping) and not sizes.keys() - set(_OVERRIDES)
        if not (str(key).isdecimal() and len(str(key)) < 6 and known):
            raise InputError(
                f"per_layer_config[{shown(key)}] is {shown(sizes)}; expected the number of a layer"
                f" and sizes of {' and '.join(_OVERRIDES)}"
            )
        if int(key) >= num_hidden_layers:
            raise InputError(
                f"per_layer_config names layer {int(key)}, but there are {num_hidden_layers} hidden"
                " layers, counted from 0"
            )
        found[int(key)] = {name: whole_number(sizes, name, 0, maximum=MAX_WIDTH) for name in sizes}
    return found


def _layer(config: Config, sizes: DecoderSizes, kind: _LayerKind, per_layer: int) -> LayerSpec:
    hidden_size = sizes.hidden_size
    double = flag(config, "use_double_wide_mlp", False) and kind.shares_cache
    mlp = MlpSpec(intermediate_size=sizes.intermediate_size * (2 if double else 1), gated=True)
    attention = _attention(config, sizes, kind)
    with_experts = flag(config, "enable_moe_block", False)
    extra: tuple[Tensor, ...] = ()
    if per_layer:
        extra += (
            *linear("per_layer_input_gate", hidden_size, per_layer),
            *linear("per_layer_projection", per_layer, hidden_size),
            *norm("post_per_layer_input_norm", hidden_size),
        )
    if with_experts:
        moe = _experts(config, mlp)
        extra += (vector("router.scale", hidden_size), vector("router.per_expert", moe.num_experts))
        blocks = (("self_attn", attention), ("mlp", moe))
        return LayerSpec(blocks=blocks, norms=FOUR_NORMS + _EXPERT_NORMS, extra=extra)
    return LayerSpec(blocks=(("self_attn", attention), ("mlp", mlp)), norms=FOUR_NORMS, extra=extra)


def _attention(config: Config, sizes: DecoderSizes, kind: _LayerKind) -> AttentionSpec:
    """With ``attention_k_eq_v`` the values of full layers are their keys."""
    bias = flag(config, "attention_bias", False)
    window = whole_number(config, "sliding_window", 512, maximum=MAX_TOKENS)
    attention = grouped_query_attention(
        sizes,
        num_key_value_heads=kind.num_key_value_heads,
        head_dim=kind.head_dim,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
    )
    return replace(
        attention,
        sliding_window=window if kind.attention == SLIDING else None,
        values_from_keys=flag(config, "attention_k_eq_v", False) and kind.attention == FULL,
        shares_cache=kind.shares_cache,
    )


def _experts(config: Config, mlp: MlpSpec) -> MoeSpec:
    num_experts, per_token = expert_counts(config, ("num_experts", 0), ("top_k_experts", 0))
    width = whole_number(config, "moe_intermediate_size", 0)
    return MoeSpec(
        num_experts=num_experts,
        experts_per_token=per_token,
        expert=MlpSpec(intermediate_size=width, gated=True),
        dense=mlp,
    )


def _per_layer_inputs(config: Config, sizes: DecoderSizes, width: int) -> tuple[Tensor, ...]:
    """A second embedding that gives every layer an input of ``width`` of its own."""
    if width == 0:
        return ()
    rows = whole_number(config, "vocab_size_per_layer_input", 262144, maximum=MAX_VOCABULARY)
    all_layers = sizes.num_hidden_layers * width
    return (
        lookup("model.embed_tokens_per_layer", rows, all_layers),
        *linear("model.per_layer_model_projection", sizes.hidden_size, all_layers),
        *norm("model.per_layer_projection_norm", width),
    )


def _vision_tower(vision: Config, hidden_size: int) -> TowerSpec:
    width = whole_number(vision, "hidden_size", 768)
    depth = whole_number(vision, "num_hidden_layers", 16, maximum=MAX_LAYERS)
    heads = whole_number(vision, "num_attention_heads", 12, maximum=MAX_HEADS)
    attention = AttentionSpec(
        num_attention_heads=heads,
        num_key_value_heads=whole_number(vision, "num_key_value_heads", 12, maximum=MAX_HEADS),
        head_dim=whole_number(vision, "head_dim", 64),
        qk_norm=True,
    )
    mlp = MlpSpec(intermediate_size=whole_number(vision, "intermediate_size", 3072), gated=True)
    patch = whole_number(vision, "patch_size", 16, maximum=2**10)
    rows = whole_number(vision, "position_embedding_size", 10240)
    layer = (
        *attention.tensors(width),
        *mlp.tensors(width),
        *(tensor for name in FOUR_NORMS for tensor in norm(name, width)),
    )
    return TowerSpec(
        name="vision_config",
        tensors=(
            lookup("position_embedding_table", 2 * rows, width),
            *linear("input_proj", 3 * patch**2, width),
            *(tensor.repeated(depth) for tensor in layer),
            *linear("embedding_projection", width, hidden_size),
        ),
    )


def _audio_tower(audio: Config, hidden_size: int) -> TowerSpec:
    """A conformer: two convolutions that halve time twice, then layers of two MLPs, attention with
    relative positions and a depthwise convolution."""
    width = whole_number(audio, "hidden_size", 1024)
    heads = whole_number(audio, "num_attention_heads", 8, maximum=MAX_HEADS)
    depth = whole_number(audio, "num_hidden_layers", 12, maximum=MAX_LAYERS)
    kernel = whole_number(audio, "conv_kernel_size", 5, maximum=2**10)
    output = whole_number(audio, "output_proj_dims", 1536)
    layer = (
        *_conformer_mlp("feed_forward1", width),
        *_conformer_mlp("feed_forward2", width),
        vector("self_attn.per_dim_scale", divided_head_dim(width, heads)),
        *(
            tensor
            for name in ("q_proj", "k_proj", "v_proj", "post", "relative_k_proj")
            for tensor in linear(f"self_attn.{name}", width, width)
        ),
        *linear("lconv1d.linear_start", width, 2 * width),
        *linear("lconv1d.linear_end", width, width),
        Tensor(name="lconv1d.depthwise_conv1d", shape=(width, 1, kernel), role="convolution"),
        *norm("lconv1d.pre_layer_norm", width),
        *norm("lconv1d.conv_norm", width),
        *(t for name in ("norm_pre_attn", "norm_post_attn", "norm_out") for t in norm(name, width)),
    )
    return TowerSpec(
        name="audio_config",
        tensors=(
            *_subsampling(audio, width),
            *(tensor.repeated(depth) for tensor in layer),
            *linear("output_proj", width, output, bias=True),
            *linear("embedding_projection", output, hidden_size),
        ),
    )


def _conformer_mlp(name: str, width: int) -> tuple[Tensor, ...]:
    return (
        *linear(f"{name}.ffw_layer_1", width, 4 * width),
        *linear(f"{name}.ffw_layer_2", 4 * width, width),
        *norm(f"{name}.pre_layer_norm", width),
        *norm(f"{name}.post_layer_norm", width),
    )


def _subsampling(audio: Config, width: int) -> tuple[Tensor, ...]:
    channels = audio.get("subsampling_conv_channels", [128, 32])
    if (
        not isinstance(channels, list)
        or len(channels) != 2
        or not all(isinstance(c, int) and 4 <= c <= MAX_WIDTH for c in channels)
    ):
        raise InputError(
            f"subsampling_conv_channels is {shown(channels)}; expected two numbers of channels"
        )
    first, second = channels
    return (
        Tensor(name="layer0.conv", shape=(first, 1, 3, 3), role="convolution"),
        *norm("layer0.norm", first),
        Tensor(name="layer1.conv", shape=(second, first, 3, 3), role="convolution"),
        *norm("layer1.norm", second),
        *linear("input_proj_linear", first // 4 * second, width),
    )
