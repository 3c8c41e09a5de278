"""What every axis of a layout divides in one model, and where its groups sit."""

from dataclasses import dataclass

from meshfit.cluster.topology import Topology
from meshfit.mesh.candidates import IntArray
from meshfit.mesh.facts import Facts, engine_facts, facts_of, with_derived
from meshfit.mesh.groups import EXPERT_AXES, groups, spanned_levels
from meshfit.mesh.padding import padded_vocabulary
from meshfit.mesh.spec import LayoutSpec
from meshfit.mesh.stage_placement import V_SCHEDULES
from meshfit.profile import EngineProfile
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import TrainingSpec


@dataclass(frozen=True, kw_only=True)
class Divided:
    """One dimension of the workload: its size before and what is left of it on a rank.

    ``copies`` is how many ranks of the axis hold the same part (key/value heads beyond their
    number).
    """

    dimension: str
    whole: int
    part: float
    copies: int = 1


@dataclass(frozen=True, kw_only=True)
class AxisShare:
    """One axis with more than one rank.

    Attributes:
        divides: dimensions, the largest tensors' first.
        level: the outermost topology level that one of its groups crosses.
        leaves_host: whether one of its groups is on several hosts.
    """

    axis: str
    degree: int
    divides: tuple[Divided, ...]
    level: str
    leaves_host: bool


def axis_shares(
    model: ModelSpec,
    training: TrainingSpec,
    topology: Topology,
    layout: LayoutSpec,
    profile: EngineProfile,
) -> tuple[AxisShare, ...]:
    """Every axis of a legal layout with more than one rank, outermost first, experts' last: those
    that hold the same experts (``edp``), different ones, and parts of one.

    Sizes that a model lacks are left out. The parts of earlier axes are not taken off again: each
    row is the axis alone, ``whole / degree``.
    """
    facts = with_derived(
        facts_of(model=model, training=training, topology=topology, layout=layout)
        | engine_facts(profile)
    )
    axes = (*profile.rank_order, *(EXPERT_AXES if layout.ep > 1 else ()))
    members = {axis: groups(layout, axis, profile.rank_order, profile.expert_fold) for axis in axes}
    return tuple(
        _share(axis, ranks, topology, _divides(axis, facts, layout, profile))
        for axis, ranks in members.items()
        if ranks.shape[1] > 1
    )


def _share(
    axis: str, members: IntArray, topology: Topology, divides: tuple[Divided, ...]
) -> AxisShare:
    level = topology.levels[int(spanned_levels(members, topology).max())]
    hosts = members // topology.gpus_per_host
    return AxisShare(
        axis=axis,
        degree=members.shape[1],
        divides=divides,
        level=level.name,
        leaves_host=bool((hosts != hosts[:, :1]).any()),
    )


def _divides(
    axis: str, facts: Facts, layout: LayoutSpec, profile: EngineProfile
) -> tuple[Divided, ...]:
    match axis:
        case "tp":
            return _by_tensor_parallel(facts, layout, profile)
        case "cp":
            return _by_context_parallel(facts, layout)
        case "pp":
            return _by_pipeline(facts["num_hidden_layers"], layout)
    known = EXPERT_DIMENSIONS.get(axis, {"global_batch_size": "sequences of a step"})
    return _known(facts, facts.get(axis, 1), known)


def _by_pipeline(num_hidden_layers: int, layout: LayoutSpec) -> tuple[Divided, ...]:
    stages = layout.layers_of_stages(num_hidden_layers)
    if layout.schedule in V_SCHEDULES:  # rank r holds stages r and 2 pp - 1 - r
        most = max(map(sum, zip(stages, reversed(stages), strict=True)))
    else:
        most = max(sum(stages[rank :: layout.pp]) for rank in range(layout.pp))
    return (Divided(dimension="layers", whole=num_hidden_layers, part=most),)


EXPERT_DIMENSIONS: dict[str, dict[str, str]] = {
    "edp": {},
    "ep": {"num_experts": "experts"},
    "etp": {"moe_intermediate_size": "expert width"},
}
"""Axis -> fact -> what it divides."""

MIXERS = {
    "mixer_heads": "heads of mixers",
    "linear_key_heads": "key heads of linear attention",
    "state_space_groups": "groups of state-space layers",
}
"""Fact -> what tensor parallelism divides, in engines whose rules look at it."""


def _by_tensor_parallel(
    facts: Facts, layout: LayoutSpec, profile: EngineProfile
) -> tuple[Divided, ...]:
    tp = layout.tp
    widths = {"intermediate_size": "FFN width", "shared_expert_intermediate_size": "shared expert"}
    if layout.ep == 1:
        widths["moe_intermediate_size"] = "expert width"
    vocabulary = padded_vocabulary(
        facts["vocab_size"], tp, facts["vocabulary_multiple"], facts["vocabulary_multiple_per_rank"]
    )
    shares = [
        *_known(facts, tp, {"num_attention_heads": "query heads"}),
        *_key_value_heads(facts, tp),
        *_known(facts, tp, widths),
        *(_known(facts, tp, MIXERS) if "mixer_heads_divisible" in profile.rules else ()),
        Divided(dimension="vocabulary", whole=vocabulary, part=vocabulary / tp),
    ]
    if layout.sp:
        sequence = facts["sequence_length"] // layout.cp
        shares.append(
            Divided(dimension="sequence between blocks", whole=sequence, part=sequence / tp)
        )
    return tuple(shares)


def _key_value_heads(facts: Facts, tp: int) -> tuple[Divided, ...]:
    heads = facts.get("num_key_value_heads")
    if heads is None:
        return ()
    copies = max(1, tp // heads)
    return (
        Divided(dimension="key/value heads", whole=heads, part=max(1, heads / tp), copies=copies),
    )


def _by_context_parallel(facts: Facts, layout: LayoutSpec) -> tuple[Divided, ...]:
    shares = _known(facts, layout.cp, {"sequence_length": "sequence"})
    if facts["cp_exchange"] != "all_to_all":
        return shares
    heads = _known(
        facts, layout.cp * layout.tp, {"num_attention_heads": "query heads in attention"}
    )
    return (*shares, *heads)


def _known(facts: Facts, degree: int, dimensions: dict[str, str]) -> tuple[Divided, ...]:
    return tuple(
        Divided(dimension=name, whole=facts[fact], part=facts[fact] / degree)
        for fact, name in dimensions.items()
        if fact in facts
    )
