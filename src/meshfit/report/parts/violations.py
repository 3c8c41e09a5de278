"""Broken rules and warnings, for the terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from meshfit.report.documents.check import ViolationDocument


def violations_list(violations: Sequence[ViolationDocument]) -> RenderableType:
    """Every broken rule with its message, which names the nearest legal values."""
    if not violations:
        return Text("No rule is broken.", style="green")
    return Group(*(_violation(violation, ("✗ ", "bold red")) for violation in violations))


def warnings_list(warnings: Sequence[ViolationDocument]) -> RenderableType:
    """What a legal layout costs or needs, in the form of violations."""
    return Group(*(_violation(warning, ("! ", "bold yellow")) for warning in warnings))


def _violation(violation: ViolationDocument, mark: tuple[str, str]) -> RenderableType:
    option = (violation.get("option") or "", "dim")
    head = Text.assemble(mark, (violation["rule"], "bold"), "  ", option)
    return Group(head, Padding(Text(violation["message"]), (0, 0, 0, 2)))
