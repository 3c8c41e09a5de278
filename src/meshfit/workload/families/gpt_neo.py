"""GPT-Neo: learned positions, no biases on q, k and v, windows in every other layer."""

from dataclasses import replace

from meshfit.errors import InputError
from meshfit.workload.families.decoder import DecoderSizes, decoder_sizes, divided_head_dim
from meshfit.workload.families.keys import (
    MAX_LAYERS,
    MAX_TOKENS,
    MAX_WIDTH,
    Config,
    flag,
    optional_whole_number,
    probability,
    shown,
    whole_number,
    with_own_names,
)
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, Names

_SYNONYMS = {"num_heads": "num_attention_heads", "num_layers": "num_hidden_layers"}
_DEFAULTS = DecoderSizes(
    vocab_size=50257,
    hidden_size=2048,
    intermediate_size=8192,
    num_hidden_layers=24,
    num_attention_heads=16,
    max_position_embeddings=2048,
)


def read(name: str, config: Config) -> ModelSpec:
    """The model, with the defaults of transformers' ``GPTNeoConfig``.

    Raises:
        InputError: a key cannot be right, or ``attention_types`` do not name every layer.
    """
    own = with_own_names(config, _SYNONYMS)
    sizes = decoder_sizes({**own, "intermediate_size": 1}, _DEFAULTS)
    inner = optional_whole_number(own, "intermediate_size") or 4 * sizes.hidden_size
    if inner > MAX_WIDTH:
        raise InputError(f"four times hidden_size {sizes.hidden_size} exceeds {MAX_WIDTH}")
    window = whole_number(own, "window_size", 256, maximum=MAX_TOKENS)
    heads = sizes.num_attention_heads
    attention = AttentionSpec(
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=divided_head_dim(sizes.hidden_size, heads),
        output_bias=True,
    )
    mlp = MlpSpec(intermediate_size=inner, gated=False, bias=True)
    layer_of = {
        kind: LayerSpec(
            blocks=(("attn", replace(attention, sliding_window=size)), ("mlp", mlp)),
            norms=("ln_1", "ln_2"),
        )
        for kind, size in (("global", None), ("local", window))
    }
    return ModelSpec(
        name=name,
        model_type="gpt_neo",
        hidden_size=sizes.hidden_size,
        vocab_size=sizes.vocab_size,
        layers=tuple(layer_of[kind] for kind in _kinds(own, sizes.num_hidden_layers)),
        norm="layer_norm",
        tie_word_embeddings=flag(own, "tie_word_embeddings", True),
        max_position_embeddings=sizes.max_position_embeddings,
        learned_positions=sizes.max_position_embeddings,
        dropout=max(
            probability(own, key, 0.0)
            for key in ("resid_dropout", "embed_dropout", "attention_dropout")
        ),
        names=Names(
            layers="transformer.h",
            embedding="transformer.wte",
            positions="transformer.wpe",
            final_norm="transformer.ln_f",
        ),
        config=config,
    )


def _kinds(config: Config, num_hidden_layers: int) -> list[str]:
    """``attention_types`` is a list of pairs: kinds in turn, and how often they repeat."""
    types = config.get("attention_types")
    if types is None:
        types = [[["global", "local"], 12]]
    kinds: list[str] = []
    try:
        for pattern, times in types:
            kinds += [str(kind) for kind in pattern] * min(int(times), MAX_LAYERS)
    except (TypeError, ValueError, OverflowError):
        kinds = []
    if set(kinds) - {"global", "local"} or len(kinds) != num_hidden_layers:
        raise InputError(
            f"attention_types is {shown(config.get('attention_types'))}; expected"
            f' [[["global", "local"], N]] for {num_hidden_layers} layers'
        )
    return kinds
