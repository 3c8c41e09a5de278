"""Options that a release of an engine knows: ``engines/NAME/options.tsv``, by tools/engine_options.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, kw_only=True)
class OptionTable:
    """Options of one release.

    Attributes:
        source: the release, and where in it they stand.
        values: option -> how many values it takes: ``flag``, ``one``, ``many``; ``block`` holds others.
    """

    source: str
    values: Mapping[str, str]


@cache
def option_table(engine: str) -> OptionTable:
    """The table of one folder of ``engines``."""
    text = files("meshfit.engines").joinpath(engine, "options.tsv").read_text(encoding="utf-8")
    source, _, *rows = text.splitlines()
    return OptionTable(
        source=source.removeprefix("# "), values=dict(row.split("\t", 1) for row in rows)
    )
