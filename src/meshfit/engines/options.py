"""Options that a release of an engine knows: ``engines/NAME/options.tsv``, by tools/engine_options.py."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, kw_only=True)
class OptionTable:
    """Options of one release.

    Attributes:
        source: the release, and where in it they stand.
        values: option -> how many values it takes: ``flag``, ``one``, ``many``, or that many (``3``);
            ``block`` holds others.
        aliases: another name of an option -> the one that it stands for.
    """

    source: str
    values: Mapping[str, str]
    aliases: Mapping[str, str] = field(default_factory=dict)


@cache
def option_table(engine: str) -> OptionTable:
    """The table of one folder of ``engines``."""
    text = files("meshfit.engines").joinpath(engine, "options.tsv").read_text(encoding="utf-8")
    source, _, *lines = text.splitlines()
    rows = [line.split("\t") for line in lines]
    return OptionTable(
        source=source.removeprefix("# "),
        values={row[0]: row[1] for row in rows},
        aliases={row[0]: row[2] for row in rows if len(row) > 2},
    )
