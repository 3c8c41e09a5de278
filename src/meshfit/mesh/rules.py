"""Applying the rules of an engine: every violation of one layout, or a mask over many."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import RECOMPUTE, SCHEDULES, Candidates
from meshfit.mesh.facts import Facts, candidate_facts, engine_facts, with_derived
from meshfit.mesh.rule import Rule, Violation
from meshfit.mesh.rulebook import POSITIVE, RULES
from meshfit.profile import EngineProfile

__all__ = ["Rule", "Violation", "allowed", "refused", "rules_of", "violations"]

BoolArray = NDArray[np.bool_]

_SEARCHED_VALUES = 4096
"""Integers tried from 1, and on both sides of a given value, when legal values are named."""


def rules_of(profile: EngineProfile) -> tuple[Rule, ...]:
    """The rules that hold for an engine."""
    return tuple(RULES[name] for name in profile.rules)


def violations(facts: Facts, profile: EngineProfile) -> tuple[Violation, ...]:
    """Every rule of the engine that ``facts`` (of one layout) break; empty when it is legal.

    Rules whose facts are not all given are skipped. A size below 1 is one violation, and the
    rules that would divide by it are skipped too.
    """
    given = dict(facts) | engine_facts(profile)
    impossible = tuple(rule for rule in POSITIVE if _broken(rule, given))
    subjects = {rule.subject for rule in impossible}
    known = with_derived({name: value for name, value in given.items() if name not in subjects})
    broken = (rule for rule in rules_of(profile) if _broken(rule, known))
    return tuple(
        [_violation(rule, given, profile) for rule in impossible]
        + [_violation(rule, known, profile) for rule in broken]
    )


def refused(facts: Facts, profile: EngineProfile) -> Iterator[tuple[str, BoolArray]]:
    """Name and mask of what it breaks, for each rule whose facts are all given."""
    known = with_derived(dict(facts) | engine_facts(profile))
    for rule in (*POSITIVE, *rules_of(profile)):
        if rule.applies(known):
            yield rule.name, ~np.asarray(rule.check(known), dtype=np.bool_)


def allowed(candidates: Candidates, profile: EngineProfile, facts: Facts) -> BoolArray:
    """Which of ``candidates`` are legal; ``facts`` are those of model, training and topology."""
    legal = np.ones(len(candidates), dtype=np.bool_)
    for _, broken in refused(dict(facts) | candidate_facts(candidates), profile):
        legal &= ~broken
    return legal


def _broken(rule: Rule, facts: Facts) -> bool:
    return rule.applies(facts) and not bool(rule.check(facts))


def _violation(rule: Rule, facts: Facts, profile: EngineProfile) -> Violation:
    legal = _legal_values(rule, facts)
    nearest = legal if rule.lists_all else _around(legal, facts[rule.subject])
    option = profile.option(rule.subject)
    return Violation(
        rule=rule.name,
        message=rule.message.format_map(dict(facts)) + _advice(rule, nearest, option),
        values={need: facts[need] for need in rule.needs},
        nearest=tuple(nearest),
        option=option,
        module=rule.module,
    )


def _legal_values(rule: Rule, facts: Facts) -> list[Any]:
    """Values of the subject, all else kept, with which the rule would hold."""
    tried = _values_of(rule.subject, facts)
    legal = np.broadcast_to(rule.check(facts, **{rule.subject: tried}), tried.shape)
    values: list[Any] = tried[legal].tolist()
    return values


def _values_of(subject: str, facts: Facts) -> NDArray[Any]:
    policies: dict[str, tuple[Any, ...]] = {
        "schedule": SCHEDULES,
        "recompute": RECOMPUTE,
        "offload": ("none",),
        "sp": (False, True),
        "zero_stage": (0, 1, 2, 3),
    }
    if subject in policies:
        return np.array(policies[subject])
    from_one = np.arange(1, _SEARCHED_VALUES + 1)
    around = np.arange(facts[subject] - _SEARCHED_VALUES, facts[subject] + _SEARCHED_VALUES + 1)
    return np.concatenate([from_one, around[around > _SEARCHED_VALUES]])


def _around(values: list[Any], given: Any) -> list[Any]:
    """The nearest value below and the nearest above."""
    below = [value for value in values if value < given]
    above = [value for value in values if value > given]
    return below[-1:] + above[:1]


def _advice(rule: Rule, nearest: list[Any], option: str) -> str:
    if not nearest:
        return f"; no {option} makes it legal"
    if rule.lists_all:
        return f"; valid {option}: {_list(nearest)}"
    return f"; nearest {' or '.join(map(str, nearest))}"


def _list(values: list[Any]) -> str:
    return f"[{', '.join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)}]"
