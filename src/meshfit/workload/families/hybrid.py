"""Decoders of attention and Mamba layers: Bamba, Granite 4, Jamba and Falcon-H1."""

from collections.abc import Sequence

from meshfit.errors import InputError
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.state_space import Mamba2Spec, MambaSpec
from meshfit.workload.families.decoder import (
    DecoderSizes,
    decoder_sizes,
    grouped_query_attention,
)
from meshfit.workload.families.experts import Experts, expert_counts
from meshfit.workload.families.keys import (
    MAX_HEADS,
    MAX_LAYERS,
    Config,
    flag,
    index_list,
    layer_kinds,
    optional_whole_number,
    probability,
    whole_number,
    with_own_names,
)
from meshfit.workload.families.mamba import MAX_KERNEL, check_heads, expanded, time_step_rank
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, Names

_KINDS = {
    "full_attention": "attention",
    "attention": "attention",
    "linear_attention": "mamba",
    "mamba": "mamba",
}
_NORMS = ("input_layernorm", "pre_ff_layernorm")
_FINAL = Names(final_norm="model.final_layernorm")


def read_bamba(name: str, config: Config) -> ModelSpec:
    """Bamba: Mamba-2 but for the layers in ``attn_layer_indices``, a dense MLP behind each.

    Raises:
        InputError: a key cannot be right, or the sizes of Mamba contradict one another.
    """
    sizes = decoder_sizes(
        config,
        DecoderSizes(
            vocab_size=128000,
            hidden_size=4096,
            intermediate_size=14336,
            num_hidden_layers=32,
            num_attention_heads=32,
            max_position_embeddings=262144,
        ),
    )
    bias = flag(config, "attention_bias", False)
    attention = _attention(config, sizes, kv_heads=8, bias=bias)
    mamba = _mamba2(config, sizes, inner=expanded(config, "mamba_expand", sizes.hidden_size))
    listed = index_list(config, "attn_layer_indices", sizes.num_hidden_layers)
    mlp = MlpSpec(
        intermediate_size=sizes.intermediate_size,
        gated=True,
        bias=flag(config, "mlp_bias", False),
    )
    kinds = ["attention" if i in listed else "mamba" for i in range(sizes.num_hidden_layers)]
    layer_of = {
        "attention": _layer(("self_attn", attention), ("feed_forward", mlp)),
        "mamba": _layer(("mamba", mamba), ("feed_forward", mlp)),
    }
    layers = tuple(layer_of[kind] for kind in kinds)
    return _model(name, config, "bamba", sizes, layers, names=_FINAL)


def read_granite(name: str, config: Config) -> ModelSpec:
    """Granite 4: Mamba-2 and attention by ``layer_types``, a shared MLP and experts if any.

    Raises:
        InputError: a key cannot be right, or the sizes of Mamba contradict one another.
    """
    own = with_own_names(config, {"layers_block_type": "layer_types"})
    sizes = decoder_sizes(
        own,
        DecoderSizes(
            vocab_size=32000,
            hidden_size=4096,
            intermediate_size=11008,
            num_hidden_layers=32,
            num_attention_heads=32,
            max_position_embeddings=2048,
        ),
    )
    bias = flag(own, "attention_bias", False)
    attention = _attention(own, sizes, kv_heads=None, bias=bias)
    kinds = layer_kinds(own, sizes.num_hidden_layers, _KINDS, ["mamba"] * sizes.num_hidden_layers)
    mamba = _mamba2(own, sizes, inner=expanded(own, "mamba_expand", sizes.hidden_size))
    feed_forward = _granite_feed_forward(own, sizes)
    norms = ("input_layernorm", "post_attention_layernorm")
    layer_of = {
        "attention": LayerSpec(blocks=(("self_attn", attention), *feed_forward), norms=norms),
        "mamba": LayerSpec(blocks=(("mamba", mamba), *feed_forward), norms=norms),
    }
    layers = tuple(layer_of[kind] for kind in kinds)
    return _model(name, config, "granitemoehybrid", sizes, layers)


def _granite_feed_forward(config: Config, sizes: DecoderSizes) -> tuple[tuple[str, Block], ...]:
    shared = MlpSpec(
        intermediate_size=whole_number(config, "shared_intermediate_size", 1024), gated=True
    )
    shared_mlp = (("shared_mlp", shared),)
    if whole_number(config, "num_local_experts", 8, minimum=0, maximum=2**14) == 0:
        return shared_mlp
    moe = Experts(
        total=("num_local_experts", 8),
        chosen=("num_experts_per_tok", 2),
        width=("intermediate_size", sizes.intermediate_size),
    ).read(config)
    return (("block_sparse_moe", moe), *shared_mlp)


def read_jamba(name: str, config: Config) -> ModelSpec:
    """Jamba: attention and experts each in every so many layers, Mamba and MLPs in the others.

    Raises:
        InputError: a key cannot be right.
    """
    own = with_own_names(config, {"num_local_experts": "num_experts"})
    sizes = decoder_sizes(
        own,
        DecoderSizes(
            vocab_size=65536,
            hidden_size=4096,
            intermediate_size=14336,
            num_hidden_layers=32,
            num_attention_heads=32,
            max_position_embeddings=262144,
        ),
    )
    attention = _attention(own, sizes, kv_heads=8, bias=False)
    mamba = _mamba(own, sizes)
    mlp = MlpSpec(intermediate_size=sizes.intermediate_size, gated=True)
    with_attention = _periodic(own, "attn_layer", (8, 4), sizes.num_hidden_layers)
    with_experts = _periodic(own, "expert_layer", (2, 1), sizes.num_hidden_layers)
    total, chosen = ("num_experts", 16), ("num_experts_per_tok", 2)
    if whole_number(own, *total, maximum=2**14) == 1:
        with_experts = [False] * sizes.num_hidden_layers
        moe: Block = mlp
    else:
        expert_counts(own, total, chosen)
        width = ("intermediate_size", sizes.intermediate_size)
        moe = Experts(total=total, chosen=chosen, width=width).read(own)
    layer_of = {
        (attends, sparse): _layer(
            ("self_attn", attention) if attends else ("mamba", mamba),
            ("feed_forward", moe if sparse else mlp),
        )
        for attends in (True, False)
        for sparse in (True, False)
    }
    layers = tuple(layer_of[pair] for pair in zip(with_attention, with_experts, strict=True))
    return _model(name, config, "jamba", sizes, layers, names=_FINAL)


def read_falcon_h1(name: str, config: Config) -> ModelSpec:
    """Falcon-H1: Mamba-2 and attention in parallel in every layer, then an MLP.

    Raises:
        InputError: a key cannot be right, or the sizes of Mamba contradict one another.
    """
    sizes = decoder_sizes(
        config,
        DecoderSizes(
            vocab_size=128000,
            hidden_size=4096,
            intermediate_size=14336,
            num_hidden_layers=32,
            num_attention_heads=32,
            max_position_embeddings=8192,
        ),
    )
    bias = flag(config, "attention_bias", False)
    attention = _attention(config, sizes, kv_heads=8, bias=bias)
    inner = optional_whole_number(config, "mamba_d_ssm", 1024)
    if inner is None:
        inner = expanded(config, "mamba_expand", sizes.hidden_size)
    mamba = _mamba2(config, sizes, inner=inner, gated_norm=flag(config, "mamba_rms_norm", False))
    projectors = flag(config, "projectors_bias", False)
    if projectors != flag(config, "mamba_proj_bias", False):
        raise InputError(
            "projectors_bias and mamba_proj_bias differ; a bias on one projection of Mamba only"
            " cannot be read"
        )
    mlp = MlpSpec(
        intermediate_size=sizes.intermediate_size,
        gated=True,
        bias=flag(config, "mlp_bias", False),
    )
    layer = LayerSpec(
        blocks=(("mamba", mamba), ("self_attn", attention), ("feed_forward", mlp)), norms=_NORMS
    )
    return _model(
        name, config, "falcon_h1", sizes, (layer,) * sizes.num_hidden_layers, names=_FINAL
    )


def _layer(mixer: tuple[str, Block], feed_forward: tuple[str, Block]) -> LayerSpec:
    return LayerSpec(blocks=(mixer, feed_forward), norms=_NORMS)


def _model(
    name: str,
    config: Config,
    model_type: str,
    sizes: DecoderSizes,
    layers: tuple[LayerSpec, ...],
    *,
    names: Names | None = None,
) -> ModelSpec:
    return ModelSpec(
        name=name,
        model_type=model_type,
        hidden_size=sizes.hidden_size,
        vocab_size=sizes.vocab_size,
        layers=layers,
        norm="rms_norm",
        tie_word_embeddings=flag(config, "tie_word_embeddings", False),
        max_position_embeddings=sizes.max_position_embeddings,
        dropout=probability(config, "attention_dropout", 0.0),
        names=names or Names(),
        config=config,
    )


def _attention(
    config: Config, sizes: DecoderSizes, *, kv_heads: int | None, bias: bool
) -> AttentionSpec:
    return grouped_query_attention(
        sizes,
        num_key_value_heads=optional_whole_number(config, "num_key_value_heads", kv_heads)
        or sizes.num_attention_heads,
        head_dim=optional_whole_number(config, "head_dim"),
        qkv_bias=bias,
        output_bias=bias,
    )


def _mamba2(
    config: Config, sizes: DecoderSizes, *, inner: int, gated_norm: bool = True
) -> Mamba2Spec:
    """The Mamba-2 mixer of keys ``mamba_*``; a head's width may follow from the number of heads."""
    heads = whole_number(config, "mamba_n_heads", 128, maximum=MAX_HEADS)
    head_dim = inner // heads
    if config.get("mamba_d_head", "auto") != "auto":
        head_dim = whole_number(config, "mamba_d_head", 64)
    mixer = Mamba2Spec(
        num_heads=heads,
        head_dim=head_dim,
        state_size=whole_number(config, "mamba_d_state", 256),
        num_groups=whole_number(config, "mamba_n_groups", 1, maximum=MAX_HEADS),
        conv_kernel=whole_number(config, "mamba_d_conv", 4, maximum=MAX_KERNEL),
        conv_bias=flag(config, "mamba_conv_bias", True),
        proj_bias=flag(config, "mamba_proj_bias", False),
        gated_norm=gated_norm,
    )
    check_heads(mixer, inner, ("mamba_n_heads", "mamba_d_head", "mamba_expand"))
    return mixer


def _mamba(config: Config, sizes: DecoderSizes) -> MambaSpec:
    return MambaSpec(
        inner_size=expanded(config, "mamba_expand", sizes.hidden_size),
        state_size=whole_number(config, "mamba_d_state", 16),
        conv_kernel=whole_number(config, "mamba_d_conv", 4, maximum=MAX_KERNEL),
        time_step_rank=time_step_rank(config, "mamba_dt_rank", sizes.hidden_size),
        conv_bias=flag(config, "mamba_conv_bias", True),
        proj_bias=flag(config, "mamba_proj_bias", False),
        inner_norms=True,
    )


def _periodic(
    config: Config, prefix: str, default: tuple[int, int], num_hidden_layers: int
) -> Sequence[bool]:
    """Layers whose number leaves ``PREFIX_offset`` when divided by ``PREFIX_period``."""
    period = whole_number(config, f"{prefix}_period", default[0], maximum=MAX_LAYERS)
    offset = whole_number(config, f"{prefix}_offset", default[1], minimum=0, maximum=MAX_LAYERS)
    if offset >= period:
        raise InputError(f"{prefix}_offset {offset} must be less than {prefix}_period {period}")
    return [i % period == offset for i in range(num_hidden_layers)]
