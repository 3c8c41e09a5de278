"""Every layout that an engine accepts for a model on so many accelerators."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from meshfit.cluster.topology import Topology
from meshfit.errors import InputError
from meshfit.mesh.facts import facts_of
from meshfit.mesh.generate import divisors
from meshfit.mesh.rule import Violation
from meshfit.mesh.rules import violations
from meshfit.profile import EngineProfile
from meshfit.serve.setting.layout import ServingLayout
from meshfit.workload.model import ModelSpec

_EXPERT_MODULES = ("experts", "routed experts")


@dataclass(frozen=True, kw_only=True)
class ServingSpace:
    """Legal layouts, and how many of the others each rule refuses first."""

    layouts: tuple[ServingLayout, ...]
    rejected: dict[str, int] = field(default_factory=dict)


def serving_space(
    model: ModelSpec, profile: EngineProfile, topology: Topology, accelerators: int
) -> ServingSpace:
    """Layouts of ``accelerators`` in equal replicas that the engine's rules allow."""
    facts = facts_of(model=model)
    legal, rejected = [], Counter[str]()
    for layout in _layouts(accelerators, has_experts=model.moe is not None):
        broken = layout_violations(layout, facts, profile, topology)
        if broken:
            rejected[broken[0].rule] += 1
        else:
            legal.append(layout)
    return ServingSpace(layouts=tuple(legal), rejected=dict(rejected))


def layout_violations(
    layout: ServingLayout, facts: dict[str, Any], profile: EngineProfile, topology: Topology
) -> tuple[Violation, ...]:
    """Every rule of the engine that a layout breaks, ``facts`` being those of the model.

    Experts are cut and spread over all ranks of a stage, the rest over the ranks that share
    attention: rules on experts see the former as tp, the others the latter.
    """
    dense = facts | layout_facts(layout, topology)
    stage = dense | {
        "tp": layout.ranks_per_stage,
        "ep": layout.ep,
        "world": layout.ranks_per_stage * layout.pp,
    }
    return tuple(
        [one for one in violations(dense, profile) if one.module not in _EXPERT_MODULES]
        + [one for one in violations(stage, profile) if one.module in _EXPERT_MODULES]
    )


def require_legal(
    model: ModelSpec, layout: ServingLayout, profile: EngineProfile, topology: Topology
) -> None:
    """
    Raises:
        InputError: the engine refuses the layout; every rule that it breaks is named.
    """
    broken = layout_violations(layout, facts_of(model=model), profile, topology)
    if broken:
        listed = "\n".join(f"  {one.rule}: {one.message}" for one in broken)
        raise InputError(f"{profile.name} does not serve {layout.label}:\n{listed}")


def layout_facts(layout: ServingLayout, topology: Topology) -> dict[str, Any]:
    """One group of ranks that share attention, as rules see it."""
    return {
        "tp": layout.tp,
        "pp": layout.pp,
        "cp": 1,
        "vpp": 1,
        "dp_shard": 1,
        "dp_replicate": 1,
        "zero_stage": 0,
        "ep": 1,
        "etp": 1,
        "world": layout.tp * layout.pp,
        "gpus_per_domain": max(topology.gpus_per_host, topology.levels[0].size),
    }


def _layouts(accelerators: int, *, has_experts: bool) -> Iterator[ServingLayout]:
    """Every way to make equal replicas; attention groups and ep only where there are experts, which
    are what groups share (without them they would be replicas)."""
    for per_replica in divisors(accelerators):
        for pp in divisors(per_replica):
            ranks = per_replica // pp
            for attention_dp in divisors(ranks) if has_experts else (1,):
                for ep in divisors(ranks) if has_experts else (1,):
                    yield ServingLayout(
                        replicas=accelerators // per_replica,
                        tp=ranks // attention_dp,
                        pp=pp,
                        ep=ep,
                        attention_dp=attention_dp,
                    )
