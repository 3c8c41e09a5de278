"""``docs/rules.md`` says what the code says."""

from pathlib import Path

from meshfit.engines import PROFILES
from meshfit.mesh.rulebook import RULES
from meshfit.report.rules import rules_page

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def test_the_page_is_what_the_rules_say():
    """When it differs: ``python -m meshfit.report.rules > docs/rules.md``."""
    assert PAGE.read_text(encoding="utf-8") == rules_page()


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
