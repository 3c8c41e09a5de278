"""Every way that the mesh axes go together on eight ranks, and those of them that are run. No torch here.

Two layouts that differ in degrees alone take the same code: run is one for every *set* of axes above 1.
"""

from collections import defaultdict
from itertools import product

from meshfit.engines import engine_profile
from meshfit.mesh.facts import facts_of
from meshfit.mesh.generate import divisors
from meshfit.mesh.rules import violations
from meshfit.mesh.spec import AXES, LayoutSpec
from meshfit.workload.families import read_family
from tests.run.layouts import CONFIGS, GLOBAL_BATCH_SIZE, Case, has_experts

NUM_COMBINED_RANKS = 8
COMBINED_AXES: tuple[str, ...] = (*AXES, "ep")
DENSE, EXPERTS, EXPERTS_AND_AUXILIARY = "llama_deep", "mixtral_deep", "mixtral_deep_auxiliary"


def axes_of(layout: LayoutSpec) -> tuple[str, ...]:
    """Those whose degree is above 1."""
    return tuple(axis for axis in COMBINED_AXES if getattr(layout, axis) > 1)


def legal_cases(model: str) -> list[Case]:
    """Every combination of degrees that the runner's rules allow with whole experts, one case each."""
    expert_degrees = divisors(CONFIGS[model].get("num_local_experts", 1))
    degrees = product(*[divisors(NUM_COMBINED_RANKS)] * len(AXES), expert_degrees)
    cases = [_case(model, dict(zip(COMBINED_AXES, row, strict=True))) for row in degrees]
    return [case for case in cases if _is_legal(case)]


def _case(model: str, degrees: dict[str, int]) -> Case:
    """With two micro-batches where ranks have two sequences; stages need as many as there are of them."""
    own = GLOBAL_BATCH_SIZE // (degrees["dp_replicate"] * degrees["dp_shard"])
    return Case(
        model=model, keys=degrees | {"micro_batch_size": max(1, own // max(2, degrees["pp"]))}
    )


def _is_legal(case: Case) -> bool:
    if case.layout.world_size != NUM_COMBINED_RANKS:
        return False
    model = read_family(case.model, CONFIGS[case.model])
    if has_experts(case) and case.layout.tp > 1 and case.layout.ep == 1:
        return False  # cuts them
    facts = facts_of(model=model, training=case.training, layout=case.layout)
    return not violations(facts, engine_profile("native"))


def one_for_each_set(cases: list[Case]) -> list[Case]:
    """Of the cases of every set of axes one, from set to set at another place among them."""
    sets: dict[tuple[str, ...], list[Case]] = defaultdict(list)
    for case in cases:
        sets[axes_of(case.layout)].append(case)
    return [same[place % len(same)] for place, same in enumerate(sets.values())]


def _with_auxiliary_loss(case: Case) -> Case:
    """The same layout with a second term of the loss, where the rules allow one."""
    other = Case(model=EXPERTS_AND_AUXILIARY, keys=case.keys)
    return other if _is_legal(other) else case


DENSE_COMBINATIONS: list[Case] = one_for_each_set(legal_cases(DENSE))
EXPERT_COMBINATIONS: list[Case] = [
    _with_auxiliary_loss(case) for case in one_for_each_set(legal_cases(EXPERTS))
]
