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
    """Lower-case name -> ``config`` (as in config.json, or the path of one), ``source`` of its
    figures and, in shipped ones, ``repositories`` of the Hugging Face Hub that hold such a model; a
    person's own entries go before shipped ones."""
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
    ``ORG/NAME`` in the local Hub cache; the repository of a model of the catalogue as ``ORG/NAME``,
    ``ORG--NAME`` or ``NAME``, in any case.

    Raises:
        InputError: there is none of these, or its config cannot be right.
    """
    models = catalogue()
    name: str | None = name_or_path.lower()
    if name not in models:
        if (path := _locate(name_or_path, base or Path())) is not None:
            return read_family(name_or_path, read_config(path))
        name = _of_repository(name_or_path)
    if name is None:
        raise InputError(_unknown(name_or_path, base or Path()))
    config = models[name]["config"]
    return read_family(name, read_config(config) if isinstance(config, Path) else config)


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


def _locate(name_or_path: str, base: Path) -> Path | None:
    """The file or folder of that name, else its config in the Hub cache, else None."""
    if not name_or_path.strip():
        return None
    path = base / os.path.expanduser(name_or_path)  # noqa: PTH111 (keeps ~nobody as it is)
    return path if path_exists(path) else cached_config(name_or_path)


def repository_of(name: str) -> str | None:
    """A repository of the Hub with weights of a model of the catalogue; None where none is known."""
    repositories = _shipped().get(name.lower(), {}).get("repositories", ())
    return repositories[0] if repositories else None


def _of_repository(name: str) -> str | None:
    """The model of the catalogue whose repository is called ``name``."""
    wanted = name.replace("--", "/", 1).lower()
    for model, entry in _shipped().items():
        for repository in map(str.lower, entry.get("repositories", ())):
            if wanted in (repository, repository.rpartition("/")[2]):
                return model
    return None


def _unknown(name_or_path: str, base: Path) -> str:
    nearest = nearest_name(name_or_path.rsplit("/", 1)[-1], catalogue())
    known = f"did you mean {nearest}?" if nearest else "`meshfit catalogue models` lists the names"
    return (
        f"model {shown(name_or_path)} is no name of the catalogue, no file or folder in"
        f" {base.absolute()}, and not in the Hub cache {hub_cache()}; {known}"
    )
