"""OPT: learned positions with two rows in reserve, ReLU, LayerNorms."""

from meshfit.workload.blocks.tensor import Tensor, linear
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
)
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, Names

RESERVED_POSITIONS = 2


def read(name: str, config: Config) -> ModelSpec:
    """The model, with the defaults of transformers' ``OPTConfig``.

    Raises:
        InputError: a key cannot be right.
    """
    hidden_size = whole_number(config, "hidden_size", 768)
    width = optional_whole_number(config, "word_embed_proj_dim") or hidden_size
    positions = whole_number(config, "max_position_embeddings", 2048, maximum=MAX_TOKENS)
    affine = flag(config, "layer_norm_elementwise_affine", True)
    final = flag(config, "do_layer_norm_before", True) and not flag(
        config, "_remove_final_layer_norm", False
    )
    layers = whole_number(config, "num_hidden_layers", 12, maximum=MAX_LAYERS)
    return ModelSpec(
        name=name,
        model_type="opt",
        hidden_size=hidden_size,
        vocab_size=whole_number(config, "vocab_size", 50272, maximum=MAX_VOCABULARY),
        layers=(_layer(config, hidden_size),) * layers,
        norm="layer_norm",
        norm_vectors=2 if affine else 0,
        final_norms=int(final),
        tie_word_embeddings=flag(config, "tie_word_embeddings", True),
        max_position_embeddings=positions,
        learned_positions=positions + RESERVED_POSITIONS,
        embedding_size=width if width != hidden_size else None,
        extra=_projections(width, hidden_size),
        dropout=max(
            probability(config, "dropout", 0.1), probability(config, "attention_dropout", 0)
        ),
        names=Names(
            layers="model.decoder.layers",
            embedding="model.decoder.embed_tokens",
            positions="model.decoder.embed_positions",
            final_norm="model.decoder.final_layer_norm",
        ),
        config=config,
    )


def _layer(config: Config, hidden_size: int) -> LayerSpec:
    heads = whole_number(config, "num_attention_heads", 12, maximum=MAX_HEADS)
    bias = flag(config, "enable_bias", True)
    attention = AttentionSpec(
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=divided_head_dim(hidden_size, heads),
        qkv_bias=bias,
        output_bias=bias,
    )
    mlp = MlpSpec(intermediate_size=whole_number(config, "ffn_dim", 3072), gated=False, bias=bias)
    return LayerSpec(
        blocks=(("self_attn", attention), ("mlp", mlp)),
        norms=("self_attn_layer_norm", "final_layer_norm"),
    )


def _projections(width: int, hidden_size: int) -> tuple[Tensor, ...]:
    """Between embeddings of another width and the hidden dim (OPT-350m)."""
    if width == hidden_size:
        return ()
    return (
        *linear("model.decoder.project_in", width, hidden_size),
        *linear("model.decoder.project_out", hidden_size, width),
    )
