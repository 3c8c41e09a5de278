"""Models by name: the shipped catalogue, a file, a folder, or the local Hub cache."""

import json
import os
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from meshfit.errors import InputError, nearest_name
from meshfit.user_catalogue import user_catalogue, user_catalogue_path
from meshfit.workload.config_file import path_exists, read_config
from meshfit.workload.families import read_family
from meshfit.workload.families.keys import shown
from meshfit.workload.hub_cache import cached_config, hub_cache
from meshfit.workload.model import ModelSpec


def catalogue() -> Mapping[str, Mapping[str, Any]]:
    """Lower-case name -> ``config`` (as in config.json, or the path of one) and ``source`` of its
    figures; a person's own entries go before shipped ones."""
    return {**_shipped(), **_own()}


@cache
def _shipped() -> Mapping[str, Mapping[str, Any]]:
    text = resources.files("meshfit.workload").joinpath("models.json").read_text("utf-8")
    models: dict[str, dict[str, Any]] = json.loads(text)
    return models


def read_model(name_or_path: str, base: Path | None = None) -> ModelSpec:
    """The model that a person names.

    In this order: a name of the catalogue in any case; a config file or a folder holding
    ``config.json``, relative to ``base`` (the working folder when None); a repository
    ``ORG/NAME`` in the local Hub cache.

    Raises:
        InputError: there is none of these, or its config cannot be right.
    """
    name = name_or_path.lower()
    if (entry := catalogue().get(name)) is not None:
        config = entry["config"]
        return read_family(name, read_config(config) if isinstance(config, Path) else config)
    return read_family(name_or_path, read_config(_locate(name_or_path, base or Path())))


def _own() -> dict[str, dict[str, Any]]:
    """Models of the person's catalogue; paths count from its folder."""
    path = user_catalogue_path()
    if path is None:
        return {}
    models = {}
    for name, given in user_catalogue().models.items():
        config = given if isinstance(given, str) else given.config
        source = None if isinstance(given, str) else given.source
        models[name.lower()] = {
            "config": path.parent / Path(config).expanduser()
            if isinstance(config, str)
            else config,
            "source": source or f"{path}",
        }
    return models


def _locate(name_or_path: str, base: Path) -> Path:
    if name_or_path.strip():
        path = base / os.path.expanduser(name_or_path)  # noqa: PTH111 (keeps ~nobody as it is)
        if path_exists(path):
            return path
        if (config := cached_config(name_or_path)) is not None:
            return config
    nearest = nearest_name(name_or_path.rsplit("/", 1)[-1], catalogue())
    known = f"did you mean {nearest}?" if nearest else f"catalogue: {', '.join(catalogue())}"
    raise InputError(
        f"model {shown(name_or_path)} is no name of the catalogue, no file or folder in"
        f" {base.absolute()}, and not in the Hub cache {hub_cache()}; {known}"
    )
