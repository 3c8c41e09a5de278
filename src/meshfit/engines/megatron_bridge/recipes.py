"""What recipes of Megatron-Bridge set: ``recipes.tsv``, by tools/bridge_recipes.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One recipe.

    Attributes:
        name: of its function, in ``module``.
        repository: of its model.
        fields: ``section.field`` -> the value as text.
    """

    name: str
    module: str
    repository: str
    fields: Mapping[str, str]


@cache
def recipes() -> Mapping[str, Recipe]:
    """All that are known, by name."""
    text = files("meshfit.engines.megatron_bridge").joinpath("recipes.tsv").read_text("utf-8")
    rows = [line.split("\t") for line in text.splitlines()[2:]]
    return {
        name: Recipe(
            name=name,
            module=module,
            repository=repository,
            fields=dict(field.split("=", 1) for field in fields.split()),
        )
        for name, module, repository, fields in rows
    }
