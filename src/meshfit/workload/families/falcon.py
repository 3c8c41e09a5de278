"""Falcon: one key/value head (7B) or groups (40B, 180B), attention and MLP in parallel."""

from meshfit.errors import InputError
from meshfit.workload.families.decoder import divided_head_dim
from meshfit.workload.families.keys import (
    MAX_HEADS,
    MAX_LAYERS,
    MAX_TOKENS,
    MAX_VOCABULARY,
    Config,
    flag,
    optional_whole_number,
    probability,
    whole_number,
    with_own_names,
)
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, Names

_SYNONYMS = {"n_embed": "hidden_size", "n_head": "num_attention_heads",
             "n_layer": "num_hidden_layers", "n_head_kv": "num_kv_heads"}  # fmt: skip


def read(name: str, config: Config) -> ModelSpec:
    """The model, with the defaults of transformers' ``FalconConfig``.

    Raises:
        InputError: a key cannot be right.
    """
    own = with_own_names(config, _SYNONYMS)
    hidden_size = whole_number(own, "hidden_size", 4544)
    bias = flag(own, "bias", False)
    inner = optional_whole_number(own, "ffn_hidden_size") or 4 * hidden_size
    layer = LayerSpec(
        blocks=(
            ("self_attention", _attention(own, hidden_size, bias)),
            ("mlp", MlpSpec(intermediate_size=inner, gated=False, bias=bias)),
        ),
        norms=_norms(own),
        parallel=flag(own, "new_decoder_architecture", False) or flag(own, "parallel_attn", True),
    )
    return ModelSpec(
        name=name,
        model_type="falcon",
        hidden_size=hidden_size,
        vocab_size=whole_number(own, "vocab_size", 65024, maximum=MAX_VOCABULARY),
        layers=(layer,) * whole_number(own, "num_hidden_layers", 32, maximum=MAX_LAYERS),
        norm="layer_norm",
        tie_word_embeddings=flag(own, "tie_word_embeddings", True),
        max_position_embeddings=whole_number(
            own, "max_position_embeddings", 2048, maximum=MAX_TOKENS
        ),
        dropout=max(probability(own, k, 0.0) for k in ("attention_dropout", "hidden_dropout")),
        names=Names(
            layers="transformer.h",
            embedding="transformer.word_embeddings",
            final_norm="transformer.ln_f",
        ),
        config=config,
    )


def _attention(config: Config, hidden_size: int, bias: bool) -> AttentionSpec:
    """Key/value heads: ``num_kv_heads`` in the new architecture; else one with ``multi_query``, or
    as many as heads without."""
    heads = whole_number(config, "num_attention_heads", 71, maximum=MAX_HEADS)
    stated = optional_whole_number(config, "num_kv_heads", maximum=MAX_HEADS) or heads
    kv_heads = heads
    if flag(config, "new_decoder_architecture", False):
        kv_heads = stated
    elif flag(config, "multi_query", True):
        kv_heads = 1
    if heads % kv_heads:
        raise InputError(f"num_attention_heads {heads} is no multiple of num_kv_heads {kv_heads}")
    return AttentionSpec(
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=divided_head_dim(hidden_size, heads),
        qkv_bias=bias,
        output_bias=bias,
    )


def _norms(config: Config) -> tuple[str, ...]:
    new = flag(config, "new_decoder_architecture", False)
    count = optional_whole_number(config, "num_ln_in_parallel_attn", maximum=2)
    if count is None and new:
        count = 2
    if not flag(config, "parallel_attn", True):
        return ("input_layernorm", "post_attention_layernorm")
    return ("ln_attn", "ln_mlp") if count == 2 else ("input_layernorm",)
