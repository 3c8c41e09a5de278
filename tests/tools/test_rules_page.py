"""What ``docs/rules.md`` says of each rule and engine; that it is up to date: ``tests/test_reference.py``."""

from meshfit.engines import PROFILES
from meshfit.mesh.rulebook import RULES
from tools.rules_page import rules_page


def test_every_rule_is_documented_with_its_reason_and_its_engines():
    page = rules_page()
    for rule in RULES.values():
        assert f"\n### {rule.name}\n" in page
        row = next(line for line in page.splitlines() if line.startswith(f"| [`{rule.name}`]"))
        marks = [cell.strip() for cell in row.split("|")[2:-1]]
        for profile, mark in zip(PROFILES.values(), marks, strict=True):
            assert (mark == "yes") == (rule.name in profile.rules)
            assert (mark == "warns") == (rule.name in profile.warnings)


def test_every_engine_is_named():
    page = rules_page()
    for profile in PROFILES.values():
        assert f"| {profile.name} | {profile.version} | {profile.kind} |" in page
