"""What a model is, as far as planning needs to know: its dimensions, layer by layer.

A family module (``workload/families/NAME.py``) turns a Hugging Face ``config.json`` into a
``ModelSpec``; everything below this file reads only the ``ModelSpec``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class AttentionSpec:
    """One softmax attention: grouped-query, of which multi-head and multi-query are the ends."""

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    """A norm over each head of q and k (Qwen3): one weight of ``head_dim`` each."""
    sliding_window: int | None = None
    """Tokens a query sees at most; None: all before it."""


@dataclass(frozen=True, kw_only=True)
class MlpSpec:
    """One dense MLP: gated (three matrices) or plain (two)."""

    intermediate_size: int
    gated: bool
    bias: bool = False


@dataclass(frozen=True, kw_only=True)
class LayerSpec:
    """One transformer layer: attention and MLP, each behind a norm."""

    attention: AttentionSpec
    mlp: MlpSpec


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The architecture of a causal language model.

    Attributes:
        name: what the person called it (a file, a folder or a catalogue name).
        model_type: Hugging Face's ``model_type``.
        layers: one entry a layer, in order; equal layers are the same object.
        norm: ``rms_norm`` has one vector of ``hidden_size``, ``layer_norm`` two.
        learned_positions: rows of a learned position embedding (GPT-2); 0 with rotary positions.
        norms_named_after_attention: norms of a layer that transformers names after its attention
            (``post_attention_layernorm``), which tables of parameters by part therefore file there.
        dropout: the largest dropout probability anywhere in the config.
        config: the configuration as read, for whoever builds the model.
    """

    name: str
    model_type: str
    hidden_size: int
    vocab_size: int
    layers: tuple[LayerSpec, ...]
    norm: Literal["rms_norm", "layer_norm"]
    tie_word_embeddings: bool
    max_position_embeddings: int
    learned_positions: int = 0
    norms_named_after_attention: int = 0
    dropout: float = 0.0
    config: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def num_hidden_layers(self) -> int:
        return len(self.layers)

    @property
    def attention(self) -> AttentionSpec:
        """The attention of the first layer: what rules on head counts look at."""
        return self.layers[0].attention

    @property
    def mlp(self) -> MlpSpec:
        """The MLP of the first layer."""
        return self.layers[0].mlp
