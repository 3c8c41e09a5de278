"""Parameters that a pipeline rank holds, by what divides them and by who trains them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.adapters import adapter_elements
from meshfit.predict.shape.columns import StepColumns
from meshfit.predict.shape.schedule import Chunk, RankShape
from meshfit.workload import counts
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.tensor import Tensor
from meshfit.workload.model import LayerSpec, ModelSpec
from meshfit.workload.training import AdapterSpec

FloatArray = NDArray[np.float64]

_KEYS_AND_VALUES = frozenset(("k_proj", "v_proj"))


@dataclass(frozen=True)
class Parameters:
    """Counts by what divides them.

    Attributes:
        sharded: over tp.
        key_values: over tp, where there are as many key heads (``key_value_heads``); with fewer, which
            ranks share, each rank keeps all of them.
        replicated: over nothing.
        experts: over ep and etp.
    """

    sharded: float = 0
    replicated: float = 0
    experts: float = 0
    key_values: float = 0
    key_value_heads: int = 1

    def __add__(self, other: "Parameters") -> "Parameters":
        return Parameters(
            self.sharded + other.sharded,
            self.replicated + other.replicated,
            self.experts + other.experts,
            self.key_values + other.key_values,
            max(self.key_value_heads, other.key_value_heads),
        )

    def __mul__(self, factor: float) -> "Parameters":
        return Parameters(
            self.sharded * factor,
            self.replicated * factor,
            self.experts * factor,
            self.key_values * factor,
            self.key_value_heads,
        )

    @property
    def total(self) -> float:
        return self.sharded + self.replicated + self.experts + self.key_values

    def on_rank(self, columns: StepColumns) -> FloatArray:
        """On one rank before data parallelism shards anything."""
        return np.asarray(self.dense(columns) + self.experts / columns.expert_split)

    def on_shard(self, columns: StepColumns, sharded: NDArray[np.bool_]) -> FloatArray:
        """On one rank where data parallelism shards them; padding of shards is ignored."""
        dense = self.dense(columns) / np.where(sharded, columns.state_shard, 1)
        if not self.experts:
            return np.asarray(dense)
        each = self.experts / columns.expert_split
        return np.asarray(dense + each / np.where(sharded, columns.expert_shard, 1))

    def dense(self, columns: StepColumns) -> FloatArray:
        """On one rank before data parallelism shards anything, without experts."""
        return self.cut(columns) + self._shared(columns) + self.replicated

    def cut(self, columns: StepColumns) -> FloatArray:
        """Of what tp divides, what one rank computes with; experts apart."""
        ranks_of_keys = np.minimum(columns.tp, self.key_value_heads)
        return np.asarray(self.sharded / columns.tp + self.key_values / ranks_of_keys)

    def _shared(self, columns: StepColumns) -> FloatArray:
        """Weights of key heads that one rank keeps beside the one that it computes."""
        others = self.key_values * (1 - 1 / self.key_value_heads)
        return np.where(columns.tp > self.key_value_heads, others, 0.0)


@dataclass(frozen=True)
class Held:
    """What a part of a model consists of.

    Attributes:
        trained: parameters that get gradients and optimizer state; of these ``matrices`` are what
            Muon treats as matrices.
        frozen: in the compute type; ``frozen_linears``: weights that QLoRA stores in few bits.
    """

    trained: Parameters = Parameters()
    matrices: Parameters = Parameters()
    frozen: Parameters = Parameters()
    frozen_linears: Parameters = Parameters()

    def __add__(self, other: "Held") -> "Held":
        return Held(
            self.trained + other.trained,
            self.matrices + other.matrices,
            self.frozen + other.frozen,
            self.frozen_linears + other.frozen_linears,
        )

    def __mul__(self, factor: float) -> "Held":
        return Held(
            self.trained * factor,
            self.matrices * factor,
            self.frozen * factor,
            self.frozen_linears * factor,
        )

    @property
    def all(self) -> Parameters:
        return self.trained + self.frozen + self.frozen_linears


@lru_cache(maxsize=1024)
def layer_held(
    layer: LayerSpec,
    hidden_size: int,
    norm_vectors: int,
    adapter: AdapterSpec | None,
    *,
    mixers_cut: bool = False,
) -> Held:
    """One layer: its blocks and norms.

    Args:
        mixers_cut: whether tensor parallelism divides mixers of which no weight says how
            (``predict.shape.cut``).
    """
    whole = [
        f"{name}."
        for name, block in layer.blocks
        if mixers_cut
        and block.mixes_tokens
        and all(t.split is None for t in block.tensors(hidden_size))
    ]
    tensors = counts.layer_tensors(layer, hidden_size, norm_vectors)
    cut = (replace(t, split="column") if t.name.startswith(tuple(whole)) else t for t in tensors)
    return _of(cut, adapter, in_layers=True, key_value_heads=key_value_heads(layer))


def held_by_layers(
    shape: RankShape, model: ModelSpec, adapter: AdapterSpec | None
) -> Iterator[tuple[Held, int]]:
    """Each kind of layer on a rank, and how many of it there are."""
    for chunk in shape.chunks:
        for layer, count in chunk.layers:
            yield layer_held(layer, model.hidden_size, model.vectors_per_norm, adapter), count


def ends_held(shape: RankShape, model: ModelSpec, adapter: AdapterSpec | None) -> Held:
    """What lies on a rank beside layers.

    Embeddings, encoders of images or sound and whatever else stands before the layers lie on the
    first stage; final norm and head on the last. A tied head is the embedding where both are on one
    stage; else each end holds a copy. Heads for multi-token prediction are left out, as are towers
    that published counts leave out: neither transformers' nor torchtitan's models build them.
    """
    total = Held()
    for chunk in shape.chunks:
        if chunk.has_embedding or chunk.has_head:
            total += _of(_chunk_ends(chunk, model), adapter, in_layers=False)
    return total


def rank_held(shape: RankShape, model: ModelSpec, adapter: AdapterSpec | None) -> Held:
    """All virtual stages of one pipeline rank."""
    layers = layers_held(shape.layers, model.hidden_size, model.vectors_per_norm, adapter)
    return ends_held(shape, model, adapter) + layers


def model_held(model: ModelSpec, adapter: AdapterSpec | None) -> Held:
    """The whole model, undivided, as pipeline ranks hold it between them; a tied head once."""
    layers = tuple(Counter((*model.encoder, *model.layers)).items())
    ends = (*counts.outer_tensors(model), *_counted_towers(model))
    return _of(ends, adapter, in_layers=False) + layers_held(
        layers, model.hidden_size, model.vectors_per_norm, adapter
    )


@lru_cache(maxsize=1024)
def layers_held(
    layers: tuple[tuple[LayerSpec, int], ...],
    hidden_size: int,
    norm_vectors: int,
    adapter: AdapterSpec | None,
    *,
    mixers_cut: bool = False,
) -> Held:
    """Several kinds of layers, so many of each; arguments as of ``layer_held``."""
    total = Held()
    for layer, count in layers:
        total += (
            layer_held(layer, hidden_size, norm_vectors, adapter, mixers_cut=mixers_cut) * count
        )
    return total


def _chunk_ends(chunk: Chunk, model: ModelSpec) -> Iterator[Tensor]:
    names = model.names
    last = (f"{names.final_norm}.", f"{names.head}.")
    for tensor in counts.outer_tensors(model):
        if chunk.has_head if tensor.name.startswith(last) else chunk.has_embedding:
            yield tensor
    if chunk.has_head and model.tie_word_embeddings and not chunk.has_embedding:
        yield from counts.head_tensors(model)
    if chunk.has_embedding:
        yield from _counted_towers(model)


def _counted_towers(model: ModelSpec) -> Iterator[Tensor]:
    return (t for tower in model.towers if tower.counted for t in tower.tensors or ())


def _of(
    tensors: Iterable[Tensor],
    adapter: AdapterSpec | None,
    *,
    in_layers: bool,
    key_value_heads: int | None = None,
) -> Held:
    total = Held()
    for tensor in tensors:
        total += _held(tensor, adapter, in_layers, key_value_heads)
    return total


def _held(
    tensor: Tensor, adapter: AdapterSpec | None, in_layers: bool, key_value_heads: int | None
) -> Held:
    own = divided(tensor, tensor.elements, key_value_heads)
    is_matrix = in_layers and tensor.role in ("linear", "router")
    if adapter is None:
        return Held(trained=own, matrices=own if is_matrix else Parameters())
    if not (in_layers and tensor.role == "linear"):
        return Held(frozen=own)
    added = _factors(tensor, adapter, key_value_heads)
    return Held(trained=added, matrices=added, frozen_linears=own)


def _factors(tensor: Tensor, adapter: AdapterSpec, key_value_heads: int | None) -> Parameters:
    """Of the two factors beside a linear, the one on its divided side is divided with it."""
    both = adapter_elements(tensor, adapter)
    if not both or tensor.split is None:
        return Parameters(replicated=both)
    side = tensor.shape[0] if tensor.split == "column" else tensor.shape[-1]
    own = divided(tensor, adapter.rank * side, key_value_heads)
    return own + Parameters(replicated=both - adapter.rank * side)


def key_value_heads(layer: LayerSpec) -> int | None:
    """Of its attention; None where it has none of this kind."""
    attention = layer.find(AttentionSpec)
    return attention.num_key_value_heads if attention is not None else None


def divided(tensor: Tensor, elements: int, key_value_heads: int | None) -> Parameters:
    """``elements`` under what divides the tensor; ``key_value_heads`` of its layer."""
    path = tensor.name.split(".")
    if "experts" in path:
        return Parameters(experts=elements)
    if tensor.split is None:
        return Parameters(replicated=elements)
    if key_value_heads is not None and not _KEYS_AND_VALUES.isdisjoint(path):
        return Parameters(key_values=elements, key_value_heads=key_value_heads)
    return Parameters(sharded=elements)
