"""What the rotary decoder families (Llama and its descendants) have in common."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from meshfit.errors import InputError
from meshfit.workload.families.keys import (
    MAX_HEADS,
    MAX_LAYERS,
    MAX_TOKENS,
    MAX_VOCABULARY,
    MAX_WIDTH,
    Config,
    flag,
    probability,
    whole_number,
)
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec


@dataclass(frozen=True, kw_only=True)
class DecoderSizes:
    """The sizes that every rotary decoder's config has under the same keys."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int


def decoder_sizes(config: Config, defaults: DecoderSizes) -> DecoderSizes:
    """The sizes in ``config``; what is absent has the family's default.

    Raises:
        InputError: a size is not a whole number in its range.
    """
    limits = {
        "vocab_size": MAX_VOCABULARY,
        "hidden_size": MAX_WIDTH,
        "intermediate_size": MAX_WIDTH,
        "num_hidden_layers": MAX_LAYERS,
        "num_attention_heads": MAX_HEADS,
        "max_position_embeddings": MAX_TOKENS,
    }
    return DecoderSizes(
        **{
            key: whole_number(config, key, getattr(defaults, key), maximum=maximum)
            for key, maximum in limits.items()
        }
    )


def grouped_query_attention(
    sizes: DecoderSizes,
    *,
    num_key_value_heads: int,
    head_dim: int | None,
    qkv_bias: bool = False,
    output_bias: bool = False,
    qk_norm: bool = False,
) -> AttentionSpec:
    """Attention under rotary positions. ``head_dim`` None: hidden_size / num_attention_heads.

    Raises:
        InputError: the sizes do not divide, or an odd head cannot be rotated in pairs.
    """
    heads = sizes.num_attention_heads
    head_dim = head_dim or divided_head_dim(sizes.hidden_size, heads)
    if head_dim % 2:
        raise InputError(f"head_dim is {head_dim}; rotary positions need an even one")
    attention = AttentionSpec(
        num_attention_heads=heads,
        num_key_value_heads=num_key_value_heads,
        head_dim=head_dim,
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        qk_norm=qk_norm,
    )
    check_heads(attention)
    return attention


def check_heads(attention: AttentionSpec, key: str = "num_attention_heads") -> None:
    """``key`` is where the config states the number of query heads.

    Raises:
        InputError: they cannot be shared out to the key/value heads, or are too wide together.
    """
    heads, kv_heads = attention.num_attention_heads, attention.num_key_value_heads
    if heads % kv_heads:
        raise InputError(
            f"{key} {heads} is no multiple of num_key_value_heads {kv_heads};"
            " every key/value head serves equally many query heads"
        )
    if heads * attention.head_dim > MAX_WIDTH:
        raise InputError(f"{key} {heads} x head_dim {attention.head_dim} exceeds {MAX_WIDTH}")


def divided_head_dim(hidden_size: int, num_attention_heads: int) -> int:
    """``hidden_size / num_attention_heads``.

    Raises:
        InputError: it is not whole.
    """
    if hidden_size % num_attention_heads:
        raise InputError(
            f"hidden_size {hidden_size} is no multiple of num_attention_heads"
            f" {num_attention_heads}; no whole head_dim follows from them"
        )
    return hidden_size // num_attention_heads


def rotary_decoder(
    name: str,
    config: Config,
    *,
    model_type: str,
    sizes: DecoderSizes,
    attention: AttentionSpec,
    mlp_bias: bool = False,
    windows: Sequence[int | None],
) -> ModelSpec:
    """A decoder with RMS norms and gated MLPs; ``windows`` holds one entry a layer.

    Raises:
        InputError: ``tie_word_embeddings`` or ``attention_dropout`` cannot be right.
    """
    mlp = MlpSpec(intermediate_size=sizes.intermediate_size, gated=True, bias=mlp_bias)
    layer_with = {
        window: LayerSpec(attention=replace(attention, sliding_window=window), mlp=mlp)
        for window in set(windows)
    }
    return ModelSpec(
        name=name,
        model_type=model_type,
        hidden_size=sizes.hidden_size,
        vocab_size=sizes.vocab_size,
        layers=tuple(layer_with[window] for window in windows),
        norm="rms_norm",
        tie_word_embeddings=flag(config, "tie_word_embeddings", False),
        max_position_embeddings=sizes.max_position_embeddings,
        dropout=probability(config, "attention_dropout", 0.0),
        config=config,
    )
