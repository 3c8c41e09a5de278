"""Every way that the mesh axes go together on eight ranks, with whole experts, and on four with cut ones,
and those of them that are run. No torch here.

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

NUM_COMBINED_RANKS, NUM_CUTTING_RANKS = 8, 4
COMBINED_AXES: tuple[str, ...] = (*AXES, "ep")
CUTTING_AXES: tuple[str, ...] = (*COMBINED_AXES, "etp")
DENSE, EXPERTS, EXPERTS_AND_AUXILIARY = "llama_deep", "mixtral_deep", "mixtral_deep_auxiliary"


def axes_of(layout: LayoutSpec) -> tuple[str, ...]:
    """Those whose degree is above 1."""
    return tuple(axis for axis in CUTTING_AXES if getattr(layout, axis) > 1)


def legal_cases(model: str) -> list[Case]:
    """Every combination of degrees that the runner's rules allow with whole experts, one case each."""
    return [c for c in _legal_cases(model, NUM_COMBINED_RANKS) if not cuts_experts(c)]


def legal_cutting_cases(model: str) -> list[Case]:
    """Every one that they allow with experts whose width is cut."""
    return [c for c in _legal_cases(model, NUM_CUTTING_RANKS) if cuts_experts(c)]


def cuts_experts(case: Case) -> bool:
    """Whether ranks have parts of the same experts: ``etp``, or all of ``tp`` without ``ep``."""
    layout = case.layout
    return has_experts(case) and layout.tp > 1 and (layout.ep == 1 or layout.etp > 1)


def _legal_cases(model: str, ranks: int) -> list[Case]:
    experts = CONFIGS[model].get("num_local_experts", 1)
    degrees = product(*[divisors(ranks)] * len(AXES), divisors(experts), divisors(ranks))
    cases = [_case(model, dict(zip(CUTTING_AXES, row, strict=True))) for row in degrees]
    return [case for case in cases if case.layout.world_size == ranks and _is_legal(case)]


def _case(model: str, degrees: dict[str, int]) -> Case:
    """With two micro-batches where ranks have two sequences; stages need as many as there are of them."""
    own = GLOBAL_BATCH_SIZE // (degrees["dp_replicate"] * degrees["dp_shard"])
    return Case(
        model=model, keys=degrees | {"micro_batch_size": max(1, own // max(2, degrees["pp"]))}
    )


def _is_legal(case: Case) -> bool:
    model = read_family(case.model, CONFIGS[case.model])
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


def _combined(cases: list[Case]) -> list[Case]:
    return [_with_auxiliary_loss(case) for case in one_for_each_set(cases)]


DENSE_COMBINATIONS: list[Case] = one_for_each_set(legal_cases(DENSE))
EXPERT_COMBINATIONS: list[Case] = _combined(legal_cases(EXPERTS))
CUTTING_COMBINATIONS: list[Case] = _combined(legal_cutting_cases(EXPERTS))
