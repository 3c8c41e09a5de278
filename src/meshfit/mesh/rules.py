"""Applying the rules of an engine: every violation of one layout, or a mask over many."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import Candidates
from meshfit.mesh.facts import Facts, candidate_facts, engine_facts, with_derived
from meshfit.mesh.nearest import around, legal_values
from meshfit.mesh.rule import Rule, Violation
from meshfit.mesh.rulebook import POSITIVE, RULES
from meshfit.profile import EngineProfile

__all__ = [
    "Rule",
    "Violation",
    "allowed",
    "refused",
    "rules_of",
    "violations",
    "warnings",
    "warnings_of",
]

BoolArray = NDArray[np.bool_]

_MOST_LISTED = 32
"""Legal values are all named up to so many; beyond, the nearest are."""


def rules_of(profile: EngineProfile) -> tuple[Rule, ...]:
    """The rules that an engine refuses a layout by."""
    return tuple(RULES[name] for name in profile.rules)


def warnings_of(profile: EngineProfile) -> tuple[Rule, ...]:
    """The rules whose breach leaves a layout legal, but must be said."""
    return tuple(RULES[name] for name in profile.warnings)


def violations(facts: Facts, profile: EngineProfile) -> tuple[Violation, ...]:
    """Every rule of the engine that ``facts`` (of one layout) break; empty when it is legal.

    Rules whose facts are not all given (or are None) are skipped. A size below 1 is one violation,
    and the rules that would divide by it are skipped too.
    """
    given, impossible = _possible(facts, profile)
    known = with_derived(given)
    everything = dict(facts) | engine_facts(profile)
    return tuple(
        [_violation(rule, everything, profile) for rule in impossible]
        + [_violation(rule, known, profile) for rule in rules_of(profile) if _broken(rule, known)]
    )


def warnings(facts: Facts, profile: EngineProfile) -> tuple[Violation, ...]:
    """What must be said of a layout that the engine runs, in the form of violations."""
    known = with_derived(_possible(facts, profile)[0])
    return tuple(
        _violation(rule, known, profile) for rule in warnings_of(profile) if _broken(rule, known)
    )


def _possible(facts: Facts, profile: EngineProfile) -> tuple[dict[str, Any], tuple[Rule, ...]]:
    """Facts without sizes below 1 and without what is None, and the rules those sizes break."""
    given = {name: value for name, value in facts.items() if value is not None}
    given |= engine_facts(profile)
    impossible = tuple(rule for rule in POSITIVE if _broken(rule, given))
    subjects = {rule.subject for rule in impossible}
    return {name: value for name, value in given.items() if name not in subjects}, impossible


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
    inputs = rule.inputs(facts)
    legal = legal_values(rule, facts)
    lists_all = rule.lists_all and len(legal) <= _MOST_LISTED
    nearest = legal if lists_all else around(legal, inputs[rule.subject])
    option = rule.option_in(profile)
    details = rule.details(**inputs) if rule.details is not None else {}
    shown = inputs | details
    return Violation(
        rule=rule.name,
        message=rule.message.format_map({"engine": profile.name} | shown)
        + _advice(rule.subject, nearest, option, lists_all=lists_all),
        values=shown,
        nearest=tuple(nearest),
        option=option,
        module=rule.module,
    )


def _advice(subject: str, nearest: list[Any], option: str, *, lists_all: bool) -> str:
    own_name = "" if option == subject else f" ({option})"
    if not nearest:
        return f"; no {subject} makes it legal{own_name}"
    if lists_all:
        return f"; valid {subject}: {_list(nearest)}{own_name}"
    return f"; nearest {' or '.join(map(str, nearest))}{own_name}"


def _list(values: list[Any]) -> str:
    return f"[{', '.join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)}]"
