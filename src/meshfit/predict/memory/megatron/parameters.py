"""Parameters of one pipeline rank by what divides them, as Megatron-Core divides them."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.padding import padded_vocabulary
from meshfit.predict.shape.adapters import adapter_elements
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedule import Chunk, RankShape
from meshfit.workload import counts
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.compressed import CompressedAttentionSpec
from meshfit.workload.blocks.feed_forward import MlpSpec, MoeSpec
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.blocks.tensor import Tensor
from meshfit.workload.model import LayerSpec, ModelSpec
from meshfit.workload.training import AdapterSpec

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Counts by what divides them.

    Attributes:
        sharded: over tp.
        key_value: over tp, but no further than into ``key_value_heads``.
        replicated: over nothing.
        experts: over ep and etp.
        expert_replicated: over ep alone.
        vocabulary_rows: width of matrices with one row a token of the vocabulary, which is padded
            and cut over tp.
    """

    sharded: int = 0
    key_value: int = 0
    key_value_heads: int = 1
    replicated: int = 0
    experts: int = 0
    expert_replicated: int = 0
    vocabulary_rows: int = 0

    def __add__(self, other: "Parameters") -> "Parameters":
        return Parameters(
            sharded=self.sharded + other.sharded,
            key_value=self.key_value + other.key_value,
            key_value_heads=max(self.key_value_heads, other.key_value_heads),
            replicated=self.replicated + other.replicated,
            experts=self.experts + other.experts,
            expert_replicated=self.expert_replicated + other.expert_replicated,
            vocabulary_rows=self.vocabulary_rows + other.vocabulary_rows,
        )

    def __mul__(self, count: int) -> "Parameters":
        return Parameters(
            sharded=self.sharded * count,
            key_value=self.key_value * count,
            key_value_heads=self.key_value_heads,
            replicated=self.replicated * count,
            experts=self.experts * count,
            expert_replicated=self.expert_replicated * count,
            vocabulary_rows=self.vocabulary_rows * count,
        )


@dataclass(frozen=True, kw_only=True)
class RankParameters:
    """Parameters on one rank of every layout: those of experts have their own data-parallel group."""

    dense: FloatArray
    experts: FloatArray

    @property
    def total(self) -> FloatArray:
        return self.dense + self.experts


def on_rank(parameters: Parameters, group: LayoutGroup) -> RankParameters:
    """Divide them as every layout of ``group`` does."""
    candidates = group.candidates
    tp, ep, etp = candidates.tp, candidates.ep, candidates.etp
    dense = (
        parameters.sharded / tp
        + parameters.key_value / np.minimum(tp, parameters.key_value_heads)
        + parameters.replicated
        + parameters.vocabulary_rows * vocabulary_on_rank(group)
    )
    experts = parameters.experts / (ep * etp) + parameters.expert_replicated / ep
    return RankParameters(dense=dense, experts=experts)


def vocabulary_on_rank(group: LayoutGroup) -> FloatArray:
    """Rows of the vocabulary on one rank, padding included."""
    tp, profile = group.candidates.tp, group.profile
    rows = padded_vocabulary(
        group.model.vocab_size,
        tp,
        profile.vocabulary_multiple,
        profile.vocabulary_multiple_per_rank,
    )
    return np.asarray(rows / tp)


def rank_parameters(shape: RankShape, model: ModelSpec) -> Parameters:
    """All virtual stages of one pipeline rank.

    A tied head is the embedding where both are on one rank; else each end holds a copy. Heads for
    multi-token prediction lie with the output head and read the embedding as well.
    """
    total = Parameters()
    for chunk in shape.chunks:
        for layer, count in chunk.layers:
            total += layer_parameters(layer, model) * count
        total += _ends(chunk, model)
    return total + Parameters(vocabulary_rows=_vocabulary_matrices(shape, model))


def layer_parameters(layer: LayerSpec, model: ModelSpec) -> Parameters:
    """One layer: its blocks and its norms."""
    return _layer_parameters(layer, model.hidden_size, model.vectors_per_norm)


@lru_cache(maxsize=1024)
def _layer_parameters(layer: LayerSpec, hidden_size: int, norm_vectors: int) -> Parameters:
    attention = layer.find(AttentionSpec)
    heads = attention.num_key_value_heads if attention else 1
    whole = _sorted(counts.layer_tensors(layer, hidden_size, norm_vectors))
    moved = sum(_replicated(block, hidden_size) for _, block in layer.blocks if _is_mixer(block))
    return whole + Parameters(key_value_heads=heads, replicated=-moved, sharded=moved)


def _is_mixer(block: Block) -> bool:
    """Whether Megatron-Core cuts all of it by heads."""
    others = AttentionSpec | LatentAttentionSpec | MlpSpec | MoeSpec | CompressedAttentionSpec
    return not isinstance(block, others)


def _replicated(block: Block, hidden_size: int) -> int:
    return sum(t.elements for t in block.tensors(hidden_size) if t.split is None)


def linear_parameters(shape: RankShape, model: ModelSpec) -> Parameters:
    """Weights of the linears in all layers of one pipeline rank: what fp8 matmuls take."""
    total = Parameters()
    for chunk in shape.chunks:
        for layer, count in chunk.layers:
            total += _layer_linears(layer, model.hidden_size) * count
    return total


@lru_cache(maxsize=1024)
def _layer_linears(layer: LayerSpec, hidden_size: int) -> Parameters:
    tensors = counts.layer_tensors(layer, hidden_size, 0)
    return _sorted(tensor for tensor in tensors if tensor.role == "linear")


def adapter_parameters(shape: RankShape, model: ModelSpec, adapter: AdapterSpec) -> Parameters:
    """The adapters of all linears on one pipeline rank, divided as their linears are."""
    total = Parameters()
    for chunk in shape.chunks:
        for layer, count in chunk.layers:
            total += _layer_adapters(layer, model.hidden_size, adapter) * count
    return total


@lru_cache(maxsize=1024)
def _layer_adapters(layer: LayerSpec, hidden_size: int, adapter: AdapterSpec) -> Parameters:
    total = Parameters()
    for name, block in layer.blocks:
        for tensor in block.tensors(hidden_size):
            elements = adapter_elements(tensor.below(name), adapter)
            is_cut = tensor.split is not None
            total += Parameters(sharded=elements) if is_cut else Parameters(replicated=elements)
    return total


def _sorted(tensors: Iterable[Tensor]) -> Parameters:
    total = Parameters()
    for tensor in tensors:
        is_cut, count = tensor.split is not None, tensor.elements
        if ".experts." in f".{tensor.name}":
            total += Parameters(experts=count) if is_cut else Parameters(expert_replicated=count)
        elif is_cut and tensor.name.split(".")[-2] in ("k_proj", "v_proj"):
            total += Parameters(key_value=count)
        else:
            total += Parameters(sharded=count) if is_cut else Parameters(replicated=count)
    return total


def _ends(chunk: Chunk, model: ModelSpec) -> Parameters:
    total = Parameters()
    if chunk.has_embedding:
        total += Parameters(replicated=counts.position_parameters(model))
    if chunk.has_head:
        total += Parameters(replicated=model.final_norms * counts.norm_parameters(model))
        total += _sorted(model.extra)
        if model.head_bias:
            total += Parameters(vocabulary_rows=1)
        if model.mtp is not None:
            layers = sum((layer_parameters(each, model) for each in model.mtp.layers), Parameters())
            total += (layers + _sorted(model.mtp.extra)) * model.mtp.depth
    return total


def _vocabulary_matrices(shape: RankShape, model: ModelSpec) -> int:
    """Width of the embedding and head matrices of a rank."""
    has_embedding, has_head = shape.chunks[0].has_embedding, shape.chunks[-1].has_head
    reads_embedding = has_embedding or (has_head and model.mtp is not None)
    matrices = int(reads_embedding) + int(has_head)
    if model.tie_word_embeddings and matrices == 2:
        matrices = 1
    return matrices * model.embedding_width
