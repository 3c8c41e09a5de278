"""What a model is, as far as planning needs to know: its dimensions, layer by layer.

A family module (``workload/families/NAME.py``) turns a Hugging Face ``config.json`` into a
``ModelSpec``; everything below this file reads only the ``ModelSpec``. The blocks that layers are
made of are in ``workload/blocks``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

from meshfit.errors import InputError
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.feed_forward import MlpSpec, MoeSpec
from meshfit.workload.blocks.tensor import Tensor

__all__ = [
    "AttentionSpec",
    "LayerSpec",
    "MlpSpec",
    "ModelSpec",
    "MoeSpec",
    "MtpSpec",
    "TowerSpec",
]

BlockKind = TypeVar("BlockKind", bound=Block)

LLAMA_NORMS = ("input_layernorm", "post_attention_layernorm")


@dataclass(frozen=True, init=False)
class LayerSpec:
    """One layer: named blocks with norms over the hidden dim around them.

    ``LayerSpec(attention=..., mlp=...)`` is short for the common kind, softmax attention and then a
    dense MLP.

    Attributes:
        blocks: name below the layer (``self_attn``, ``mlp``) and block, in order.
        norms: names of the norms over the hidden dim.
        extra: parameters of the layer that belong to no block.
        parallel: the blocks read the same input and their outputs are added (GPT-J, Falcon).
    """

    blocks: tuple[tuple[str, Block], ...]
    norms: tuple[str, ...]
    extra: tuple[Tensor, ...]
    parallel: bool

    def __init__(
        self,
        *,
        blocks: tuple[tuple[str, Block], ...] = (),
        attention: AttentionSpec | None = None,
        mlp: MlpSpec | None = None,
        norms: tuple[str, ...] = LLAMA_NORMS,
        extra: tuple[Tensor, ...] = (),
        parallel: bool = False,
    ) -> None:
        short = (("self_attn", attention), ("mlp", mlp))
        named = tuple((name, block) for name, block in short if block is not None)
        assert not (blocks and named), "blocks say it all, or attention and mlp do"
        object.__setattr__(self, "blocks", blocks or named)
        object.__setattr__(self, "norms", norms)
        object.__setattr__(self, "extra", extra)
        object.__setattr__(self, "parallel", parallel)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Worked out once: layers are keys wherever equal ones are counted."""
        return hash((self.blocks, self.norms, self.extra, self.parallel))

    def find(self, kind: type[BlockKind]) -> BlockKind | None:
        """The first block of a kind, None where the layer has none."""
        return next((block for _, block in self.blocks if isinstance(block, kind)), None)

    @property
    def attention(self) -> AttentionSpec:
        """The layer's softmax attention.

        Raises:
            InputError: it has none.
        """
        return _found(self.find(AttentionSpec), "softmax attention")

    @property
    def mlp(self) -> MlpSpec:
        """The layer's dense MLP.

        Raises:
            InputError: it has none.
        """
        return _found(self.find(MlpSpec), "dense MLP")

    @property
    def moe(self) -> MoeSpec | None:
        """The layer's mixture of experts, None where it has none."""
        return self.find(MoeSpec)


def equal_as_one(layers: Iterable[LayerSpec]) -> tuple[LayerSpec, ...]:
    """The layers in order, equal ones as one object, which makes it cheap to count them by kind."""
    first: dict[LayerSpec, LayerSpec] = {}
    return tuple(first.setdefault(layer, layer) for layer in layers)


@dataclass(frozen=True, kw_only=True)
class TowerSpec:
    """An encoder of images or sound in front of the language model.

    Attributes:
        name: key of its config (``vision_config``).
        tensors: all its parameters with those of the projection into the language model; None
            where only its presence is known.
        counted: whether the published counts of the model hold it; transformers' causal language
            model class of some families leaves it out.
    """

    name: str
    tensors: tuple[Tensor, ...] | None
    counted: bool = True


@dataclass(frozen=True, kw_only=True)
class MtpSpec:
    """Heads for multi-token prediction: in the checkpoint, but in no published count.

    Attributes:
        depth: heads, one after the other.
        layers: the layers of one head.
        extra: what one head has beside layers: norms, the projection of the two inputs.
        applies_head: whether it computes logits with the model's own output head.
    """

    depth: int
    layers: tuple[LayerSpec, ...]
    extra: tuple[Tensor, ...] = ()
    applies_head: bool = True


@dataclass(frozen=True, kw_only=True)
class Names:
    """What transformers calls the parts of a model; published tables sort parameters by them."""

    layers: str = "model.layers"
    encoder: str = "encoder.layers"
    embedding: str = "model.embed_tokens"
    positions: str = "model.embed_positions"
    final_norm: str = "model.norm"
    head: str = "lm_head"


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The architecture of a language model.

    Attributes:
        name: what the person called it (a file, a folder or a catalogue name).
        model_type: Hugging Face's ``model_type``.
        layers: one entry a layer, in order; equal layers are the same object.
        norm: ``rms_norm`` has one vector of ``hidden_size``, ``layer_norm`` two.
        norm_vectors: where a norm has another number of them (0: no parameters at all).
        learned_positions: rows of a learned position embedding (GPT-2); 0 without.
        final_norms: norms over the hidden dim behind the last layer, an encoder's included.
        dropout: the largest dropout probability anywhere in the config.
        embedding_size: width of embedding and head where it is not the hidden size (OPT-350m).
        encoder: the layers of an encoder (T5); empty in a decoder.
        extra: parameters outside layers beside embeddings, final norm and head.
        towers: encoders of images or sound.
        mtp: heads for multi-token prediction; None without.
        mtp_unknown: why such heads, though the config asks for them, could not be described.
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
    norm_vectors: int | None = None
    final_norms: int = 1
    dropout: float = 0.0
    embedding_size: int | None = None
    head_bias: bool = False
    encoder: tuple[LayerSpec, ...] = ()
    extra: tuple[Tensor, ...] = ()
    towers: tuple[TowerSpec, ...] = ()
    mtp: MtpSpec | None = None
    mtp_unknown: str = ""
    names: Names = field(default_factory=Names)
    config: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def num_hidden_layers(self) -> int:
        return len(self.layers)

    @property
    def vectors_per_norm(self) -> int:
        """Vectors of parameters that a norm over the hidden dim has."""
        usual = 2 if self.norm == "layer_norm" else 1
        return usual if self.norm_vectors is None else self.norm_vectors

    @property
    def embedding_width(self) -> int:
        """Width of the token embedding and of the head's input."""
        return self.embedding_size or self.hidden_size

    def find(self, kind: type[BlockKind]) -> BlockKind | None:
        """The first block of a kind in any layer, None where there is none."""
        found = (layer.find(kind) for layer in self.layers)
        return next((block for block in found if block is not None), None)

    @property
    def num_attention_heads(self) -> int | None:
        """Heads of the first block that has any; None in a model without attention."""
        for layer in self.layers:
            for _, block in layer.blocks:
                if (heads := getattr(block, "num_attention_heads", None)) is not None:
                    return int(heads)
        return None

    @property
    def attention(self) -> AttentionSpec:
        """The first softmax attention: what rules on head counts look at.

        Raises:
            InputError: no layer has one.
        """
        return _found(self.find(AttentionSpec), "softmax attention")

    @property
    def mlp(self) -> MlpSpec:
        """The first dense MLP.

        Raises:
            InputError: no layer has one.
        """
        return _found(self.find(MlpSpec), "dense MLP")

    @property
    def moe(self) -> MoeSpec | None:
        """The first mixture of experts, None in a dense model."""
        return self.find(MoeSpec)


def _found(block: BlockKind | None, what: str) -> BlockKind:
    if block is None:
        raise InputError(f"there is no {what} in it")
    return block
