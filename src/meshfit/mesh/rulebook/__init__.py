"""Every rule by name, one module a subject. Which of them hold for an engine is in its profile.

A rule is one function: its parameters are the facts it needs (those with a default are what a
layout means where it does not say), its docstring is why. Adding one means writing it in the module
of its subject and naming it in the profiles for which it holds, under ``rules`` where the engine
refuses the layout and under ``warnings`` where it runs and a person should know.
"""

from types import ModuleType

from meshfit.mesh.facts import SIZES
from meshfit.mesh.rule import Rule
from meshfit.mesh.rulebook import (
    batch,
    context,
    experts,
    models,
    pipeline,
    placement,
    quantization,
    ranks,
    servers,
    states,
    switches,
    tensor,
)

SUBJECTS: tuple[ModuleType, ...] = (
    ranks,
    tensor,
    context,
    pipeline,
    batch,
    states,
    experts,
    quantization,
    placement,
    models,
    switches,
    servers,
)
"""The modules in the order in which their rules are applied and documented."""


def _positive(name: str) -> Rule:
    return Rule(
        name="positive",
        needs=(name,),
        subject=name,
        holds=lambda **values: values[name] >= 1,
        message=f"{name} must be at least 1, not {{{name}}}",
        reason="A degree or a size counts something that is there.",
    )


POSITIVE: tuple[Rule, ...] = tuple(_positive(name) for name in SIZES)
"""Holds for every engine and is checked first: the other rules divide by these."""


def rules_in(module: ModuleType) -> tuple[Rule, ...]:
    """The rules of one module, in its order."""
    return tuple(value for value in vars(module).values() if isinstance(value, Rule))


RULES: dict[str, Rule] = {rule.name: rule for module in SUBJECTS for rule in rules_in(module)}
"""Name -> rule."""
