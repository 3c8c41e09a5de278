"""What every rank of an axis holds alike: the states that the axis does not divide."""

from dataclasses import dataclass

from meshfit.funnel.explain.holdings import Parameters, PipelineRank, rank_holding
from meshfit.mesh.groups import coordinates, groups
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.shape.group import LayoutGroup
from meshfit.profile import EngineProfile
from meshfit.workload.counts import embedding_parameters
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import OPTIMIZER_MOMENTS, TrainingSpec

STATES = ("parameters", "gradients", "optimizer")


@dataclass(frozen=True, kw_only=True)
class OneLayout:
    """One layout, and the group of one that formulas take it as."""

    layout: LayoutSpec
    group: LayoutGroup

    @property
    def profile(self) -> EngineProfile:
        return self.group.profile

    @property
    def model(self) -> ModelSpec:
        return self.group.model

    @property
    def training(self) -> TrainingSpec:
        return self.group.training


def held_alike(axis: str, rank: PipelineRank, step: OneLayout) -> dict[str, int]:
    """State -> bytes of it that are equal on all ranks of one group of ``axis``, on one rank.

    Stages hold different layers, so along pp it is the copy of a tied embedding alone.
    """
    if axis == "pp":
        return _bytes(_tied_copy(step), 0.0, step, crosses_shards=False, crosses_experts=False)
    crossed = _crossed(axis, step)
    holding = rank_holding(rank, step.model, step.profile)
    return _bytes(
        _shared(holding, step, is_cut="tp" in crossed),
        _experts(axis, holding, crossed, step),
        step,
        crosses_shards=bool(crossed & {"dp_shard", "cp"}),
        crosses_experts=axis == "edp",
    )


def _crossed(axis: str, step: OneLayout) -> set[str]:
    """Mesh axes along which the ranks of one group differ."""
    order = step.profile.rank_order
    [first, *_] = groups(step.layout, axis, order, step.profile.expert_fold).tolist()
    places = [coordinates(step.layout, member, order) for member in first]
    return {name for name in order if len({place[name] for place in places}) > 1}


def _shared(holding: Parameters, step: OneLayout, *, is_cut: bool) -> float:
    """Parameters beside the experts that ep divides; with ``is_cut`` those that tp does not."""
    if not is_cut:
        return holding.shared(step.layout)
    return float(holding.whole + (holding.expert_whole if step.layout.ep == 1 else 0))


def _experts(axis: str, holding: Parameters, crossed: set[str], step: OneLayout) -> float:
    """Parameters of experts that all ranks of a group hold: those of ranks outside the fold, and of
    the groups that are made of such ranks."""
    is_same = axis == "edp" or crossed.isdisjoint(step.profile.expert_fold)
    return holding.experts(step.layout) if is_same else 0.0


def _tied_copy(step: OneLayout) -> float:
    """Parameters of a tied embedding, which the first and the last stage both hold."""
    model = step.model
    return embedding_parameters(model) / step.layout.tp if model.tie_word_embeddings else 0.0


def _bytes(
    shared: float, experts: float, step: OneLayout, *, crosses_shards: bool, crosses_experts: bool
) -> dict[str, int]:
    """State bytes of these parameters; none of a state whose shards the group crosses."""
    precision, columns = step.training.precision, step.group.columns
    parameter, optimizer = _element_bytes(step)
    shards, expert_shards = int(columns.state_shard[0]), int(columns.expert_shard[0])
    held = {}
    for state, element, is_sharded in (
        ("parameters", parameter, bool(columns.shards_parameters[0])),
        ("gradients", precision.gradient_bytes, bool(columns.shards_gradients[0])),
        ("optimizer", optimizer, bool(columns.shards_optimizer[0])),
    ):
        alike = _alike(shared, shards, is_sharded=is_sharded, crosses=crosses_shards)
        alike += _alike(experts, expert_shards, is_sharded=is_sharded, crosses=crosses_experts)
        held[state] = round(alike * element)
    return held


def _alike(parameters: float, shards: int, *, is_sharded: bool, crosses: bool) -> float:
    if not is_sharded:
        return parameters
    return 0.0 if crosses else parameters / shards


def _element_bytes(step: OneLayout) -> tuple[int, int]:
    """Of a parameter, and of its optimizer state. Megatron-Core counts the copy that is updated as
    optimizer state, and keeps parameters in the compute type beside it."""
    precision = step.training.precision
    moments = OPTIMIZER_MOMENTS[step.training.optimizer] * precision.moment_bytes
    if step.profile.memory_model == "pytorch":
        return precision.parameter_bytes, moments
    is_copied = precision.compute_bytes != precision.parameter_bytes
    return precision.compute_bytes, moments + precision.parameter_bytes * is_copied
