"""Which values of its subject would make a broken rule hold, all else kept."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.facts import Facts
from meshfit.mesh.rule import Rule

_SEARCHED = 4096
"""Integers tried from 1, and on both sides of the given value."""

_SEARCHED_ONE_BY_ONE = 64
"""The same where numbers are too large for arrays of 64 bits."""

_POLICIES = {
    "schedule": "schedules",
    "recompute": "recompute_options",
    "offload": "offload_options",
    "cp_method": "cp_methods",
    "zero_stage": "zero_stages",
}
"""Policy -> the fact that names the values an engine runs."""


def legal_values(rule: Rule, facts: Facts) -> list[Any]:
    """Values of the rule's subject with which it would hold, ascending.

    Of a policy those that the engine runs. Of an integer those found from 1, around the given one,
    and among the other facts and the nearest multiples of them, which a bound or a divisibility
    rule asks for however far away they are.
    """
    inputs = rule.inputs(facts)
    given = inputs[rule.subject]
    if rule.subject in _POLICIES:
        return _that_hold(rule, facts, facts[_POLICIES[rule.subject]])
    if isinstance(given, bool | np.bool_) or rule.subject == "sp":
        return _that_hold(rule, facts, (False, True))
    multiples = _neighbours(
        given, [value for name, value in inputs.items() if name != rule.subject]
    )
    if _may_overflow(inputs.values()):
        near = {*range(1, _SEARCHED_ONE_BY_ONE), *range(given - 32, given + 32), *multiples}
        return _that_hold(rule, facts, sorted(value for value in near if value >= 1))
    tried = _integers(given, multiples)
    legal = np.broadcast_to(rule.check(facts, **{rule.subject: tried}), tried.shape)
    values: list[Any] = tried[legal.astype(np.bool_)].tolist()
    return values


def around(values: list[Any], given: Any) -> list[Any]:
    """The nearest value below and the nearest above."""
    below = [value for value in values if value < given]
    above = [value for value in values if value > given]
    return below[-1:] + above[:1]


def _that_hold(rule: Rule, facts: Facts, values: Iterable[Any]) -> list[Any]:
    return [value for value in values if rule.check(facts, **{rule.subject: value})]


def _integers(given: int, more: list[int]) -> NDArray[np.int64]:
    window = np.arange(given - _SEARCHED, given + _SEARCHED + 1, dtype=np.int64)
    tried = np.concatenate([np.arange(1, _SEARCHED + 1, dtype=np.int64), window, np.array(more)])
    return np.unique(tried[tried >= 1])


def _neighbours(given: int, others: list[Any]) -> list[int]:
    """The other facts (a bound is legal at itself), and multiples on both sides of the given value:
    of each other fact, of their product, and of twice that (two chunks a rank)."""
    sizes = [value for value in others if isinstance(value, int) and value > 1]
    product = math.prod(sizes)
    return sizes + [
        (given // divisor + step) * divisor
        for divisor in (*sizes, product, 2 * product)
        for step in (0, 1)
    ]


def _may_overflow(values: Iterable[Any]) -> bool:
    """Whether products of these, and of twice their product, might not fit 64 bits."""
    return sum(abs(value).bit_length() for value in values if isinstance(value, int)) > 30
