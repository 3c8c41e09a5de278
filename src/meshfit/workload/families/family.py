"""A family of decoders with softmax attention, as data.

Llama's descendants differ in defaults, biases, norms, windows and feed-forward blocks. A module of a
family states these in one ``DecoderFamily``, and ``read`` does the rest.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from meshfit.errors import InputError
from meshfit.workload.blocks.attention import OutputGate
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.tensor import Tensor
from meshfit.workload.families.decoder import (
    DecoderSizes,
    decoder_sizes,
    grouped_query_attention,
)
from meshfit.workload.families.keys import (
    MAX_WIDTH,
    Config,
    flag,
    optional_whole_number,
    probability,
    whole_number,
    with_own_names,
)
from meshfit.workload.families.sliding import Windows
from meshfit.workload.model import (
    LLAMA_NORMS,
    AttentionSpec,
    LayerSpec,
    MlpSpec,
    ModelSpec,
    Names,
)

FeedForwards = Callable[[Config, DecoderSizes, MlpSpec], Sequence[Block]]
"""(config, sizes, the dense MLP of the config) -> the feed-forward block of every layer."""


@dataclass(frozen=True, kw_only=True)
class Flag:
    """A key of the config that is true or false."""

    key: str
    default: bool = False


Setting = bool | Flag


def no_windows(config: Config, num_hidden_layers: int) -> Sequence[int | None]:
    """Every layer sees everything."""
    return (None,) * num_hidden_layers


def dense(config: Config, sizes: DecoderSizes, mlp: MlpSpec) -> Sequence[Block]:
    """Every layer has the dense MLP."""
    return (mlp,) * sizes.num_hidden_layers


@dataclass(frozen=True, kw_only=True)
class DecoderFamily:
    """What a family's config class and modelling code fix, and which keys they read.

    Attributes:
        num_key_value_heads: the default of the key; None: as many as heads.
        head_dim: the default of the key; None: hidden_size / num_attention_heads.
        reads_head_dim: whether the config may state a ``head_dim`` at all.
        floors_head_dim: whether its code rounds hidden_size / num_attention_heads down; else heads
            must divide the hidden size.
        heads_fill_hidden: whether its code only works where heads x head_dim is the hidden size.
        reads_grouping: whether it may state ``num_key_value_heads``; else as many as heads.
        norms: norms of a layer over the hidden dim; ``final_norms`` behind the last layer.
        extra: parameters that every layer has beside its blocks.
        synonyms: other names of keys -> the names that this family reads.
    """

    model_type: str
    defaults: DecoderSizes
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    reads_head_dim: bool = True
    floors_head_dim: bool = False
    heads_fill_hidden: bool = False
    reads_grouping: bool = True
    tie_word_embeddings: bool = False
    qkv_bias: Setting = False
    output_bias: Setting = False
    mlp_bias: Setting = False
    head_bias: Setting = False
    gated: bool = True
    qk_norm: Setting = False
    qk_norm_over: Literal["head", "all_heads"] = "head"
    qk_norm_vectors: int = 1
    sinks: bool = False
    output_gate: OutputGate | None = None
    norm: Literal["rms_norm", "layer_norm"] = "rms_norm"
    norm_vectors: int | None = None
    norms: tuple[str, ...] = LLAMA_NORMS
    final_norms: int = 1
    extra: tuple[Tensor, ...] = ()
    parallel: Setting = False
    dropouts: tuple[str, ...] = ("attention_dropout",)
    windows: Windows = no_windows
    feed_forwards: FeedForwards = dense
    names: Names = Names()  # noqa: RUF009 (frozen)
    synonyms: Mapping[str, str] = field(default_factory=dict)

    def read(self, name: str, config: Config) -> ModelSpec:
        """The model. Raises ``InputError`` on a key that the family's config class would not take."""
        own = with_own_names(config, self.synonyms)
        sizes = decoder_sizes(own, self.defaults)
        attention = self.attention(own, sizes)
        mlp = MlpSpec(
            intermediate_size=sizes.intermediate_size,
            gated=self.gated,
            bias=setting(own, self.mlp_bias),
        )
        parallel = setting(own, self.parallel)
        windows = self.windows(own, sizes.num_hidden_layers)
        feed_forwards = self.feed_forwards(own, sizes, mlp)
        layer_with = {
            pair: self._layer(attention, *pair, parallel=parallel)
            for pair in set(zip(windows, feed_forwards, strict=True))
        }
        return ModelSpec(
            name=name,
            model_type=self.model_type,
            hidden_size=sizes.hidden_size,
            vocab_size=sizes.vocab_size,
            layers=tuple(layer_with[pair] for pair in zip(windows, feed_forwards, strict=True)),
            norm=self.norm,
            norm_vectors=self.norm_vectors,
            final_norms=self.final_norms,
            tie_word_embeddings=flag(own, "tie_word_embeddings", self.tie_word_embeddings),
            head_bias=setting(own, self.head_bias),
            max_position_embeddings=sizes.max_position_embeddings,
            dropout=max((probability(own, key, 0.0) for key in self.dropouts), default=0.0),
            names=self.names,
            config=config,
        )

    def attention(self, config: Config, sizes: DecoderSizes) -> AttentionSpec:
        """The attention of every layer, without a window."""
        heads = sizes.num_attention_heads
        kv_heads = self.num_key_value_heads
        if self.reads_grouping:
            kv_heads = optional_whole_number(config, "num_key_value_heads", kv_heads)
        head_dim = self.head_dim
        if self.reads_head_dim:
            head_dim = optional_whole_number(config, "head_dim", self.head_dim)
        if head_dim is None and self.floors_head_dim:
            head_dim = sizes.hidden_size // heads or None
        attention = grouped_query_attention(
            sizes,
            num_key_value_heads=kv_heads or heads,
            head_dim=head_dim,
            qkv_bias=setting(config, self.qkv_bias),
            output_bias=setting(config, self.output_bias),
            qk_norm=setting(config, self.qk_norm),
        )
        width = heads * attention.head_dim
        if self.heads_fill_hidden and width != sizes.hidden_size:
            raise InputError(
                f"num_attention_heads {heads} x head_dim {attention.head_dim} is {width}, but"
                f" {self.model_type} needs hidden_size {sizes.hidden_size}"
            )
        return replace(
            attention,
            qk_norm_over=self.qk_norm_over,
            qk_norm_vectors=self.qk_norm_vectors,
            sinks=self.sinks,
            output_gate=self.output_gate,
        )

    def _layer(
        self, attention: AttentionSpec, window: int | None, feed_forward: Block, *, parallel: bool
    ) -> LayerSpec:
        windowed = replace(attention, sliding_window=window)
        return LayerSpec(
            blocks=(("self_attn", windowed), ("mlp", feed_forward)),
            norms=self.norms,
            extra=self.extra,
            parallel=parallel,
        )


def setting(config: Config, value: Setting) -> bool:
    """What is fixed, or what the key says.

    Raises:
        InputError: the key holds neither true nor false.
    """
    return value if isinstance(value, bool) else flag(config, value.key, value.default)


def four_times_hidden(config: Config, family: DecoderFamily) -> Config:
    """``config`` with the inner size of an MLP that is always four times the hidden size.

    Raises:
        InputError: the hidden size cannot be right, or the inner size would be too large.
    """
    own = with_own_names(config, family.synonyms)
    hidden_size = whole_number(own, "hidden_size", family.defaults.hidden_size)
    if 4 * hidden_size > MAX_WIDTH:
        raise InputError(
            f"hidden_size is {hidden_size}; its MLP would be four times as wide, which exceeds"
            f" {MAX_WIDTH}"
        )
    return {**config, "intermediate_size": 4 * hidden_size}
