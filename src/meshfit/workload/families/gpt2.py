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
    whole_number,
    with_own_names,
)
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, Names

SYNONYMS = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
}
"""Common name -> GPT-2's own; transformers takes either."""

NAMES = Names(
    layers="transformer.h",
    embedding="transformer.wte",
    positions="transformer.wpe",
    final_norm="transformer.ln_f",
)


def read(name: str, config: Config) -> ModelSpec:
    """The model, with the defaults of transformers' ``GPT2Config``."""
    own = with_own_names(config, SYNONYMS)
    if flag(own, "add_cross_attention", False):
        raise InputError("add_cross_attention is true; only decoders without an encoder are read")
    hidden_size = whole_number(own, "n_embd", 768)
    positions = whole_number(own, "n_positions", 1024, maximum=MAX_TOKENS)
    attention = _attention(hidden_size, whole_number(own, "n_head", 12, maximum=MAX_HEADS))
    mlp = MlpSpec(
        intermediate_size=optional_whole_number(own, "n_inner") or _inner(hidden_size),
        gated=False,
        bias=True,
    )
    layer = LayerSpec(blocks=(("attn", attention), ("mlp", mlp)), norms=("ln_1", "ln_2"))
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
        names=NAMES,
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
