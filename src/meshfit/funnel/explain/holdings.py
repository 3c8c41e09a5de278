"""What each pipeline rank holds of a model, by what divides it; for any kind of model."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from meshfit.mesh.spec import LayoutSpec
from meshfit.mesh.stage_placement import stages_of_rank
from meshfit.predict.shape.cut import is_cut
from meshfit.profile import EngineProfile
from meshfit.workload.blocks.tensor import Tensor
from meshfit.workload.counts import (
    embedding_parameters,
    head_tensors,
    layer_tensors,
    outer_tensors,
)
from meshfit.workload.model import LayerSpec, ModelSpec
from meshfit.workload.parts import part_of


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Parameters by what divides them; undivided.

    Attributes:
        cut, whole: what tensor parallelism divides, and what each of its ranks holds.
        expert_cut, expert_whole: the same of routed experts, which ep divides first.
    """

    cut: int = 0
    whole: int = 0
    expert_cut: int = 0
    expert_whole: int = 0

    def __add__(self, other: "Parameters") -> "Parameters":
        return Parameters(
            cut=self.cut + other.cut,
            whole=self.whole + other.whole,
            expert_cut=self.expert_cut + other.expert_cut,
            expert_whole=self.expert_whole + other.expert_whole,
        )

    def __mul__(self, factor: int) -> "Parameters":
        return Parameters(
            cut=self.cut * factor,
            whole=self.whole * factor,
            expert_cut=self.expert_cut * factor,
            expert_whole=self.expert_whole * factor,
        )

    @property
    def total(self) -> int:
        return self.cut + self.whole + self.expert_cut + self.expert_whole

    def shared(self, layout: LayoutSpec) -> float:
        """Of one rank, without the experts that ep divides (without ep: with all of them)."""
        if layout.ep > 1:
            return self.cut / layout.tp + self.whole
        return (self.cut + self.expert_cut) / layout.tp + self.whole + self.expert_whole

    def experts(self, layout: LayoutSpec) -> float:
        """Of one rank, in experts that ep divides; 0 without ep."""
        if layout.ep == 1:
            return 0.0
        return (self.expert_cut / layout.etp + self.expert_whole) / layout.ep


@dataclass(frozen=True, kw_only=True)
class PipelineRank:
    """The stages of one pipeline rank.

    Attributes:
        layers: kind of layer -> how many of it.
        sends: hidden states and gradients that it sends to other stages, a micro-batch.
    """

    rank: int
    layers: Mapping[LayerSpec, int]
    has_embedding: bool
    has_head: bool
    sends: int


def pipeline_ranks(model: ModelSpec, layout: LayoutSpec) -> tuple[PipelineRank, ...]:
    """Every pipeline rank; an encoder lies on the first."""
    counts = layout.layers_of_stages(model.num_hidden_layers)
    starts = [0, *accumulate(counts)]
    last = layout.num_stages - 1
    ranks = []
    for rank in range(layout.pp):
        stages = stages_of_rank(layout.schedule, rank, layout.pp, layout.vpp)
        layers = Counter(
            layer for stage in stages for layer in model.layers[starts[stage] : starts[stage + 1]]
        )
        if 0 in stages:
            layers.update(model.encoder)
        ranks.append(
            PipelineRank(
                rank=rank,
                layers=layers,
                has_embedding=0 in stages,
                has_head=last in stages,
                sends=sum((stage > 0) + (stage < last) for stage in stages),
            )
        )
    return tuple(ranks)


def layer_holding(layer: LayerSpec, model: ModelSpec, profile: EngineProfile) -> Parameters:
    """One layer; of a mixer that is cut, all weights are."""
    cut_blocks = [
        f"{name}."
        for name, block in layer.blocks
        if is_cut(block, model.hidden_size, profile)
        and all(tensor.split is None for tensor in block.tensors(model.hidden_size))
    ]
    tensors = layer_tensors(layer, model.hidden_size, model.vectors_per_norm)
    return _sum(
        _of_tensor(tensor, cut=tensor.name.startswith(tuple(cut_blocks))) for tensor in tensors
    )


def ends_holding(rank: PipelineRank, model: ModelSpec) -> Parameters:
    """What lies beside layers: embeddings and towers; final norms and head.

    A tied head is the embedding where both are on one rank; else each end holds a copy.
    """
    heads = {tensor.name for tensor in head_tensors(model)}
    ends = Parameters()
    for tensor in outer_tensors(model):
        is_last = tensor.name in heads or tensor.name.startswith(model.names.final_norm)
        if rank.has_head if is_last else rank.has_embedding:
            ends += _of_tensor(tensor)
    if rank.has_head and model.tie_word_embeddings and not rank.has_embedding:
        ends += Parameters(cut=embedding_parameters(model))
    if rank.has_embedding:
        ends += _sum(
            _of_tensor(tensor)
            for tower in model.towers
            if tower.counted
            for tensor in tower.tensors or ()
        )
    return ends


def rank_holding(rank: PipelineRank, model: ModelSpec, profile: EngineProfile) -> Parameters:
    """All of one pipeline rank."""
    layers = (layer_holding(layer, model, profile) * n for layer, n in rank.layers.items())
    return _sum((*layers, ends_holding(rank, model)))


def _of_tensor(tensor: Tensor, *, cut: bool = False) -> Parameters:
    is_cut_here = cut or tensor.split is not None
    if part_of(tensor.name) == "routed_expert":
        if is_cut_here:
            return Parameters(expert_cut=tensor.elements)
        return Parameters(expert_whole=tensor.elements)
    return Parameters(cut=tensor.elements) if is_cut_here else Parameters(whole=tensor.elements)


def _sum(parts: Iterable[Parameters]) -> Parameters:
    return sum(parts, Parameters())
