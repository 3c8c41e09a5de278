"""T5, mT5 and UMT5: an encoder and a decoder with relative position biases and one shared embedding."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from meshfit.errors import InputError
from meshfit.workload.blocks.attention import CrossAttentionSpec
from meshfit.workload.blocks.tensor import Tensor, lookup
from meshfit.workload.families.keys import (
    MAX_HEADS,
    MAX_LAYERS,
    MAX_VOCABULARY,
    Config,
    flag,
    optional_whole_number,
    probability,
    shown,
    whole_number,
    with_own_names,
)
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, Names

_SYNONYMS = {"hidden_size": "d_model", "num_attention_heads": "num_heads",
             "num_hidden_layers": "num_layers", "head_dim": "d_kv"}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class T5Family:
    """What a family's config class fixes.

    Attributes:
        every_layer_biased: every layer has a table of relative position biases, not only the first.
    """

    model_type: str
    vocab_size: int = 32128
    d_ff: int = 2048
    num_layers: int = 6
    num_heads: int = 8
    feed_forward_proj: str = "relu"
    every_layer_biased: bool = False

    def read(self, name: str, config: Config) -> ModelSpec:
        """The model, with the defaults of its config class in transformers.

        The head is tied to the embedding whatever ``tie_word_embeddings`` says, as transformers does.
        Positions are relative and know no end; ``max_position_embeddings`` is the ``n_positions`` a
        config states, or the 512 tokens of the paper (arXiv 1910.10683, section 3.1.2).

        Raises:
            InputError: a key cannot be right.
        """
        own = with_own_names(config, _SYNONYMS)
        hidden_size = whole_number(own, "d_model", 512)
        encoder_layers = whole_number(own, "num_layers", self.num_layers, maximum=MAX_LAYERS)
        decoder_layers = (
            optional_whole_number(own, "num_decoder_layers", maximum=MAX_LAYERS) or encoder_layers
        )
        heads = whole_number(own, "num_heads", self.num_heads, maximum=MAX_HEADS)
        head_dim = whole_number(own, "d_kv", 64)
        attention = AttentionSpec(
            num_attention_heads=heads, num_key_value_heads=heads, head_dim=head_dim
        )
        cross = CrossAttentionSpec(num_attention_heads=heads, head_dim=head_dim)
        mlp = MlpSpec(
            intermediate_size=whole_number(own, "d_ff", self.d_ff),
            gated=_is_gated(own, self.feed_forward_proj),
            bias=False,
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
        tables = {"encoder": 1, "decoder": 1}
        if self.every_layer_biased:
            tables = {"encoder": encoder_layers, "decoder": decoder_layers}
        return ModelSpec(
            name=name,
            model_type=self.model_type,
            hidden_size=hidden_size,
            vocab_size=whole_number(own, "vocab_size", self.vocab_size, maximum=MAX_VOCABULARY),
            layers=(decoder,) * decoder_layers,
            encoder=(encoder,) * encoder_layers,
            norm="rms_norm",
            final_norms=2,
            tie_word_embeddings=True,
            max_position_embeddings=whole_number(own, "n_positions", 512),
            extra=_relative_biases(own, heads, tables),
            dropout=probability(own, "dropout_rate", 0.1),
            names=Names(
                layers="decoder.block",
                encoder="encoder.block",
                embedding="shared",
                final_norm="final_layer_norm",
            ),
            config=config,
        )


T5 = T5Family(model_type="t5")
MT5 = T5Family(
    model_type="mt5",
    vocab_size=250112,
    d_ff=1024,
    num_layers=8,
    num_heads=6,
    feed_forward_proj="gated-gelu",
)
UMT5 = replace(MT5, model_type="umt5", every_layer_biased=True)


def _is_gated(config: Config, default: str) -> bool:
    """Whether ``feed_forward_proj`` names a gated activation (``gated-gelu``); ``is_gated_act`` says
    otherwise where it is there, as in its class."""
    value = config.get("feed_forward_proj", default)
    if not isinstance(value, str) or value.count("-") > 1:
        raise InputError(f"feed_forward_proj is {shown(value)}; expected 'relu' or 'gated-gelu'")
    first, _, rest = value.partition("-")
    if rest and first != "gated":
        raise InputError(f"feed_forward_proj is {shown(value)}; expected 'relu' or 'gated-gelu'")
    return flag(config, "is_gated_act", bool(rest))


def _relative_biases(config: Config, heads: int, tables: Mapping[str, int]) -> tuple[Tensor, ...]:
    """As many tables as ``tables`` says for each stack."""
    buckets = whole_number(config, "relative_attention_num_buckets", 32)
    return tuple(
        lookup(f"{stack}.block.#.SelfAttention.relative_attention_bias", buckets, heads).repeated(
            count
        )
        for stack, count in tables.items()
    )
