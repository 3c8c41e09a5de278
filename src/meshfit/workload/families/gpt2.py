"""GPT-2: multi-head attention and a plain MLP with biases, layer norms, learned positions."""

from meshfit.errors import InputError
from meshfit.workload.families.decoder import divided_head_dim
from meshfit.workload.families.keys import (
    MAX_HEADS,
    MAX_LAYERS,
    MAX_TOKENS,
    MAX_VOCABULARY,
    MAX_WIDTH,
    Config,
    flag,
    optional_whole_number,
    probability,
    shown,
    whole_number,
)
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec

_SYNONYMS = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
}
"""Common name -> GPT-2's own; transformers takes either."""


def read(name: str, config: Config) -> ModelSpec:
    """The model, with the defaults of transformers' ``GPT2Config``."""
    own = _with_own_names(config)
    if flag(own, "add_cross_attention", False):
        raise InputError("add_cross_attention is true; only decoders without an encoder are read")
    hidden_size = whole_number(own, "n_embd", 768)
    positions = whole_number(own, "n_positions", 1024, maximum=MAX_TOKENS)
    layer = LayerSpec(
        attention=_attention(hidden_size, whole_number(own, "n_head", 12, maximum=MAX_HEADS)),
        mlp=MlpSpec(
            intermediate_size=optional_whole_number(own, "n_inner") or _inner(hidden_size),
            gated=False,
            bias=True,
        ),
    )
    return ModelSpec(
        name=name,
        model_type="gpt2",
        hidden_size=hidden_size,
        vocab_size=whole_number(own, "vocab_size", 50257, maximum=MAX_VOCABULARY),
        layers=(layer,) * whole_number(own, "n_layer", 12, maximum=MAX_LAYERS),
        norm="layer_norm",
        tie_word_embeddings=flag(own, "tie_word_embeddings", True),
        max_position_embeddings=positions,
        learned_positions=positions,
        dropout=max(
            probability(own, key, 0.1) for key in ("attn_pdrop", "embd_pdrop", "resid_pdrop")
        ),
        config=config,
    )


def _attention(hidden_size: int, heads: int) -> AttentionSpec:
    return AttentionSpec(
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=divided_head_dim(hidden_size, heads),
        qkv_bias=True,
        output_bias=True,
    )


def _inner(hidden_size: int) -> int:
    if 4 * hidden_size > MAX_WIDTH:
        raise InputError(f"n_inner is null, so 4 x n_embd {hidden_size}, which exceeds {MAX_WIDTH}")
    return 4 * hidden_size


def _with_own_names(config: Config) -> Config:
    """``config`` with common names turned into GPT-2's own.

    Raises:
        InputError: both names of a size are there with different values.
    """
    own = dict(config)
    for common, key in _SYNONYMS.items():
        if common not in config:
            continue
        if key in config and config[key] != config[common]:
            raise InputError(
                f"{key} is {shown(config[key])} and {common} is {shown(config[common])};"
                " they name the same size"
            )
        own[key] = config[common]
    return own
