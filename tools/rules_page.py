"""``docs/rules.md``, made from the rules themselves: ``python -m tools.rules_page > docs/rules.md``.

A test compares the file with what this writes, so a rule cannot be left out.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from types import ModuleType

from meshfit.engines import PROFILES
from meshfit.mesh.facts import SIZES
from meshfit.mesh.rule import Rule
from meshfit.mesh.rulebook import SUBJECTS, rules_in
from meshfit.profile import EngineProfile

_HEAD = """\
# Rules

What makes a layout legal, engine by engine. This page is written by
`python -m tools.rules_page`; a test keeps it equal to the code.

`meshfit check JOB` reports every broken rule at once, each with its values, the nearest legal
values, the module of the model, and the engine's own option. `meshfit check JOB --engine all` asks
every engine. `meshfit plan JOB` counts the layouts that each rule rejects, with an example and its
nearest legal neighbour.

A rule looks at the facts it names and is skipped where one of them is not known, so it answers for
whatever is given. Facts in brackets have a default. An engine marked `yes` refuses a layout that
breaks the rule; one marked `warns` runs it, and the rule says what it costs or needs.

Before all others, for every engine: a size below 1 is refused (rule `positive`), and the rules that
would divide by it are skipped. These are the sizes:
"""


def rules_page() -> str:
    """The whole page as Markdown."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    yield ", ".join(f"`{name}`" for name in SIZES) + "."
    yield ""
    yield "## Engines"
    yield ""
    yield "| engine | version | does | rules | warnings |"
    yield "|---|---|---|---|---|"
    for profile in PROFILES.values():
        yield (
            f"| {profile.name} | {profile.version} | {profile.kind} | {len(profile.rules)} | "
            f"{len(profile.warnings)} |"
        )
    yield from _not_checked()
    for module in SUBJECTS:
        yield from _section(module)


def _not_checked() -> Iterator[str]:
    yield ""
    yield "## Not checked"
    yield ""
    yield "What engines check beyond these rules, and why no rule does."
    yield ""
    yield "| engine | what it checks | why not here |"
    yield "|---|---|---|"
    for profile in PROFILES.values():
        for check, why in profile.not_checked.items():
            yield f"| {profile.name} | {check} | {why} |"


def _section(module: ModuleType) -> Iterator[str]:
    yield ""
    yield f"## {module.__name__.rsplit('.', 1)[-1].capitalize()}"
    yield ""
    yield inspect.getdoc(module) or ""
    yield ""
    yield "| rule | " + " | ".join(PROFILES) + " |"
    yield "|---" * (len(PROFILES) + 1) + "|"
    rules = rules_in(module)
    for rule in rules:
        marks = (_mark(rule, profile) for profile in PROFILES.values())
        yield f"| [`{rule.name}`](#{rule.name}) | {' | '.join(marks)} |"
    for rule in rules:
        yield from _entry(rule)


def _mark(rule: Rule, profile: EngineProfile) -> str:
    if rule.name in profile.rules:
        return "yes"
    return "warns" if rule.name in profile.warnings else ""


def _entry(rule: Rule) -> Iterator[str]:
    yield ""
    yield f"### {rule.name}"
    yield ""
    yield re.sub(r"``(.+?)``", r"`\1`", rule.reason)
    yield ""
    yield f"- says: {rule.message}"
    facts = [f"`{name}`" for name in rule.needs]
    facts += [f"[`{name}` = {_text(value)}]" for name, value in rule.defaults.items()]
    yield f"- looks at: {', '.join(facts)}"
    module = f"; concerns: {rule.module}" if rule.module else ""
    yield f"- a person would change: `{rule.subject}`{module}"
    options = [
        f"{profile.name} `{option}`"
        for profile in PROFILES.values()
        if _mark(rule, profile) and (option := rule.option_in(profile)) != rule.subject
    ]
    if options:
        yield f"- options: {', '.join(options)}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    sys.stdout.write(rules_page())
