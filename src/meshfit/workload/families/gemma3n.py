"""The language model of Gemma 3n: four streams (AltUp), a low-rank side path (LAuReL), inputs per
layer, and last layers that use the keys and values of earlier ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from meshfit.errors import InputError
from meshfit.workload.blocks.tensor import Tensor, linear, lookup, norm, vector
from meshfit.workload.families.decoder import DecoderSizes, decoder_sizes, grouped_query_attention
from meshfit.workload.families.gemma import FOUR_NORMS
from meshfit.workload.families.keys import (
    MAX_HEADS,
    MAX_LAYERS,
    MAX_VOCABULARY,
    Config,
    are_sizes,
    flag,
    probability,
    shown,
    whole_number,
)
from meshfit.workload.families.sliding import FULL, alternating_windows
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec

DEFAULTS = DecoderSizes(
    vocab_size=262400,
    hidden_size=2048,
    intermediate_size=16384,
    num_hidden_layers=35,
    num_attention_heads=8,
    max_position_embeddings=32768,
)
"""Of transformers' ``Gemma3nTextConfig``."""


@dataclass(frozen=True, kw_only=True)
class _SidePaths:
    """What runs beside attention and MLP: streams, rank of LAuReL, width of inputs per layer."""

    streams: int
    rank: int
    per_layer: int

    def of_layer(self, hidden_size: int) -> tuple[Tensor, ...]:
        streams = self.streams
        return (
            vector("altup.correct_output_scale", hidden_size),
            *linear("altup.correction_coefs", streams, streams, role="router"),
            *linear("altup.prediction_coefs", streams, streams**2, role="router"),
            *linear("altup.modality_router", hidden_size, streams, role="router"),
            *norm("altup.router_norm", hidden_size),
            *linear("laurel.linear_left", hidden_size, self.rank),
            *linear("laurel.linear_right", self.rank, hidden_size),
            *norm("laurel.post_laurel_norm", hidden_size),
            *linear("per_layer_input_gate", hidden_size, self.per_layer),
            *linear("per_layer_projection", self.per_layer, hidden_size),
            *norm("post_per_layer_input_norm", hidden_size),
        )

    def of_model(self, hidden_size: int, layers: int, rows: int) -> tuple[Tensor, ...]:
        """A second embedding with an input for every layer, and what makes and joins streams."""
        width = layers * self.per_layer
        square = (
            tensor
            for name in ("model.altup_projections", "model.altup_unembed_projections")
            for tensor in linear(name, hidden_size, hidden_size)
        )
        return (
            lookup("model.embed_tokens_per_layer", rows, width),
            *linear("model.per_layer_model_projection", hidden_size, width),
            *norm("model.per_layer_projection_norm", self.per_layer),
            *(tensor.repeated(self.streams - 1) for tensor in square if self.streams > 1),
        )


def read_text(name: str, config: Config) -> ModelSpec:
    """The model.

    Raises:
        InputError: a key cannot be right, or layers share keys that no earlier layer has.
    """
    widths = _widths(config)
    sizes = decoder_sizes({**config, "intermediate_size": widths[0]}, DEFAULTS)
    paths = _SidePaths(
        streams=whole_number(config, "altup_num_inputs", 4, maximum=64),
        rank=whole_number(config, "laurel_rank", 64),
        per_layer=whole_number(config, "hidden_size_per_layer_input", 256),
    )
    pairs = list(zip(_attentions(config, sizes), widths, strict=True))
    layer_with = {
        (attention, width): LayerSpec(
            attention=attention,
            mlp=MlpSpec(intermediate_size=width, gated=True),
            norms=FOUR_NORMS,
            extra=paths.of_layer(sizes.hidden_size),
        )
        for attention, width in set(pairs)
    }
    rows = whole_number(config, "vocab_size_per_layer_input", 262144, maximum=MAX_VOCABULARY)
    return ModelSpec(
        name=name,
        model_type="gemma3n_text",
        hidden_size=sizes.hidden_size,
        vocab_size=sizes.vocab_size,
        layers=tuple(layer_with[pair] for pair in pairs),
        norm="rms_norm",
        tie_word_embeddings=flag(config, "tie_word_embeddings", True),
        max_position_embeddings=sizes.max_position_embeddings,
        extra=paths.of_model(sizes.hidden_size, sizes.num_hidden_layers, rows),
        dropout=probability(config, "attention_dropout", 0.0),
        config=config,
    )


def _widths(config: Config) -> Sequence[int]:
    """Inner size of every layer's MLP: one number for all, or a list."""
    layers = whole_number(
        config, "num_hidden_layers", DEFAULTS.num_hidden_layers, maximum=MAX_LAYERS
    )
    value = config.get("intermediate_size", DEFAULTS.intermediate_size)
    if not isinstance(value, list):
        return [whole_number(config, "intermediate_size", DEFAULTS.intermediate_size)] * layers
    if not are_sizes(value, layers):
        raise InputError(
            f"intermediate_size is {shown(value)}; expected one whole number, or one for each of"
            f" {layers} hidden layers"
        )
    return value


def _attentions(config: Config, sizes: DecoderSizes) -> Sequence[AttentionSpec]:
    bias = flag(config, "attention_bias", False)
    attention = grouped_query_attention(
        sizes,
        num_key_value_heads=whole_number(config, "num_key_value_heads", 2, maximum=MAX_HEADS),
        head_dim=whole_number(config, "head_dim", 256),
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
    )
    count = sizes.num_hidden_layers
    windows = alternating_windows(512, 5)(config, count)
    shared = whole_number(config, "num_kv_shared_layers", 15, minimum=0, maximum=MAX_LAYERS)
    first = count - shared
    if shared and (first < 1 or set(windows[:first]) != set(windows)):
        raise InputError(
            f"num_kv_shared_layers is {shared} of {count} layers; a {FULL} and a windowed layer"
            " must come before them where both are among them, as their keys are shared"
        )
    return [
        replace(attention, sliding_window=window, shares_cache=i >= first)
        for i, window in enumerate(windows)
    ]
