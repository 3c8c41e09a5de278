"""A proposed change of an engine's file on a terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.syntax import Syntax
from rich.text import Text


def file_change(alternative: Mapping[str, Any]) -> RenderableType:
    """The diff of one of ``alternatives[]``; where it has none, its options one by one."""
    if alternative["diff"]:
        return Syntax("\n".join(alternative["diff"]), "diff", theme="ansi_dark", word_wrap=True)
    return Text("\n".join(_setting(*item) for item in alternative["options"].items()))


def _setting(name: str, value: Any) -> str:
    return f"   leave out {name}" if value is None else f"   {name} = {value}"
