"""T5: an encoder and a decoder with relative position biases and one shared embedding."""

from meshfit.errors import InputError
from meshfit.workload.blocks.attention import CrossAttentionSpec
from meshfit.workload.blocks.tensor import Tensor, lookup
from meshfit.workload.families.keys import (
    MAX_HEADS,
    MAX_LAYERS,
    MAX_VOCABULARY,
    Config,
    optional_whole_number,
    probability,
    shown,
    whole_number,
    with_own_names,
)
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, Names

_SYNONYMS = {"hidden_size": "d_model", "num_attention_heads": "num_heads",
             "num_hidden_layers": "num_layers", "head_dim": "d_kv"}  # fmt: skip


def read(name: str, config: Config) -> ModelSpec:
    """The model, with the defaults of transformers' ``T5Config``.

    The head is tied to the embedding whatever ``tie_word_embeddings`` says, as transformers does.
    Positions are relative and know no end; ``max_position_embeddings`` is the ``n_positions`` a
    config states, or the 512 tokens of the paper (arXiv 1910.10683, section 3.1.2).

    Raises:
        InputError: a key cannot be right.
    """
    own = with_own_names(config, _SYNONYMS)
    hidden_size = whole_number(own, "d_model", 512)
    encoder_layers = whole_number(own, "num_layers", 6, maximum=MAX_LAYERS)
    decoder_layers = (
        optional_whole_number(own, "num_decoder_layers", maximum=MAX_LAYERS) or encoder_layers
    )
    heads = whole_number(own, "num_heads", 8, maximum=MAX_HEADS)
    head_dim = whole_number(own, "d_kv", 64)
    attention = AttentionSpec(
        num_attention_heads=heads, num_key_value_heads=heads, head_dim=head_dim
    )
    cross = CrossAttentionSpec(num_attention_heads=heads, head_dim=head_dim)
    mlp = MlpSpec(
        intermediate_size=whole_number(own, "d_ff", 2048), gated=_is_gated(own), bias=False
    )
    encoder = LayerSpec(
        blocks=(("SelfAttention", attention), ("DenseReluDense", mlp)),
        norms=("layer.0.layer_norm", "layer.1.layer_norm"),
    )
    decoder = LayerSpec(
        blocks=(
            ("SelfAttention", attention),
            ("EncDecAttention", cross),
            ("DenseReluDense", mlp),
        ),
        norms=("layer.0.layer_norm", "layer.1.layer_norm", "layer.2.layer_norm"),
    )
    return ModelSpec(
        name=name,
        model_type="t5",
        hidden_size=hidden_size,
        vocab_size=whole_number(own, "vocab_size", 32128, maximum=MAX_VOCABULARY),
        layers=(decoder,) * decoder_layers,
        encoder=(encoder,) * encoder_layers,
        norm="rms_norm",
        final_norms=2,
        tie_word_embeddings=True,
        max_position_embeddings=whole_number(own, "n_positions", 512),
        extra=_relative_biases(own, heads),
        dropout=probability(own, "dropout_rate", 0.1),
        names=Names(
            layers="decoder.block",
            encoder="encoder.block",
            embedding="shared",
            final_norm="final_layer_norm",
        ),
        config=config,
    )


def _is_gated(config: Config) -> bool:
    """Whether ``feed_forward_proj`` names a gated activation (``gated-gelu``)."""
    value = config.get("feed_forward_proj", "relu")
    if not isinstance(value, str) or value.count("-") > 1:
        raise InputError(f"feed_forward_proj is {shown(value)}; expected 'relu' or 'gated-gelu'")
    first, _, rest = value.partition("-")
    if rest and first != "gated":
        raise InputError(f"feed_forward_proj is {shown(value)}; expected 'relu' or 'gated-gelu'")
    return bool(rest)


def _relative_biases(config: Config, heads: int) -> tuple[Tensor, ...]:
    """One table in the first layer of each stack."""
    buckets = whole_number(config, "relative_attention_num_buckets", 32)
    return tuple(
        lookup(f"{stack}.block.0.SelfAttention.relative_attention_bias", buckets, heads)
        for stack in ("encoder", "decoder")
    )
