"""Sizes of models that rows name without printing them, from their public definitions."""

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources

FILE = "public_models.csv"


def public_sizes(name: str) -> Mapping[str, str]:
    """Column of a row -> cell of the model of that name, ``experts`` and ``experts_per_token`` beside
    the schema's; empty where the name is not known."""
    return _by_name().get(name.lower(), {})


@cache
def _by_name() -> Mapping[str, Mapping[str, str]]:
    lines = resources.files("meshfit.validate").joinpath(FILE).read_text("utf-8").splitlines()
    found: dict[str, Mapping[str, str]] = {}
    for row in csv.DictReader(lines):
        names, sizes = row.pop("names"), {key: cell for key, cell in row.items() if cell}
        sizes.pop("source")
        found |= dict.fromkeys(names.split("|"), sizes)
    return found
