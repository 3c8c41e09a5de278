"""What a rule is: a predicate over facts, in arithmetic that serves one layout and a million."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from meshfit.mesh.facts import Facts
from meshfit.profile import EngineProfile

Fact = Any
"""A plain int, bool or str of one layout, or an array of shape [N] of N of them."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One way in which a layout can be legal or not.

    Attributes:
        name: published in JSON and in the reasons of rejected layouts.
        needs: facts that ``holds`` takes, by name; without them the rule is skipped.
        defaults: further facts that it takes, with the value meant where a layout does not say.
        subject: the fact among them that a person would change; legal values are named for it.
        holds: the predicate, written with operators that work on ints and on arrays alike (``&``,
            ``|``, comparisons with 0 instead of ``not``).
        message: what is wrong, as a format string over these facts, ``details`` and ``engine``.
        details: what the message says beyond the facts: computed from them, for one layout.
        option_key: what an engine's option names file the subject under; None: the subject.
        module: the part of the model that it concerns.
        lists_all: whether the legal values of the subject are few, so that all of them are named.
        reason: why, in a sentence.
    """

    name: str
    needs: tuple[str, ...]
    subject: str
    holds: Callable[..., Fact]
    message: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    details: Callable[..., dict[str, Any]] | None = None
    option_key: str | None = None
    module: str | None = None
    lists_all: bool = False
    reason: str = ""

    def applies(self, facts: Facts) -> bool:
        """Whether everything it needs is known."""
        return all(need in facts for need in self.needs)

    def inputs(self, facts: Facts) -> dict[str, Fact]:
        """Its facts: those it needs, and the others as given or by default."""
        needed = {need: facts[need] for need in self.needs}
        return needed | {name: facts.get(name, value) for name, value in self.defaults.items()}

    def option_in(self, profile: EngineProfile) -> str:
        """The engine's own name of what a person would change."""
        own = profile.option(self.subject)
        return own if self.option_key is None else profile.option_names.get(self.option_key, own)

    def check(self, facts: Facts, **overrides: Fact) -> Fact:
        """Whether it holds: one bool, or one a layout; ``overrides`` replace facts."""
        return self.holds(**self.inputs(facts) | overrides)


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One broken rule of one layout, or one warning about it.

    Attributes:
        values: the facts that the rule looked at, and what its message adds to them.
        nearest: legal values of the subject with all else kept: all of them where they are few,
            else the nearest below and above; empty when no value helps.
        option: the engine's own name of the subject.
    """

    rule: str
    message: str
    values: dict[str, Any]
    nearest: tuple[Any, ...]
    option: str
    module: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The published keys."""
        return {
            "rule": self.rule,
            "message": self.message,
            "values": {k: list(v) if isinstance(v, tuple) else v for k, v in self.values.items()},
            "nearest": list(self.nearest),
            "option": self.option,
            "module": self.module,
        }


def rule(
    *,
    subject: str,
    message: str,
    module: str | None = None,
    lists_all: bool = False,
    details: Callable[..., dict[str, Any]] | None = None,
    option_key: str | None = None,
) -> Callable[[Callable[..., Fact]], Rule]:
    """Makes a ``Rule`` of a predicate: its name, its parameters and its docstring.

    A parameter without a default is a fact the rule needs; one with a default is a fact that has
    that value where nothing is said of it.
    """

    def make(holds: Callable[..., Fact]) -> Rule:
        parameters = inspect.signature(holds).parameters
        defaults = {
            name: parameter.default
            for name, parameter in parameters.items()
            if parameter.default is not inspect.Parameter.empty
        }
        return Rule(
            name=holds.__name__,
            needs=tuple(name for name in parameters if name not in defaults),
            defaults=defaults,
            subject=subject,
            holds=holds,
            message=message,
            details=details,
            option_key=option_key,
            module=module,
            lists_all=lists_all,
            reason=inspect.getdoc(holds) or "",
        )

    return make
