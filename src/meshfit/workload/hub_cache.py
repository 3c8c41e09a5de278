"""Finding a config in the local cache of the Hugging Face Hub. Nothing is downloaded."""

import os
import re
from pathlib import Path

from meshfit.workload.config_file import CONFIG_NAME

_REPO_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


def hub_cache() -> Path:
    """The cache folder that huggingface_hub uses: HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME or home."""
    if direct := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return _expanded(direct)
    if home := os.environ.get("HF_HOME"):
        return _expanded(home) / "hub"
    return _expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface" / "hub"


def cached_config(repo_id: str) -> Path | None:
    """The config file of ``ORG/NAME`` in the cache, None when it is not there.

    The revision that ``refs/main`` names comes first, else the snapshot written last.
    """
    if not _REPO_ID.fullmatch(repo_id):
        return None
    folder = hub_cache() / f"models--{repo_id.replace('/', '--')}"
    try:
        configs = sorted(folder.glob(f"snapshots/*/{CONFIG_NAME}"), key=_written)
        main = _revision(folder)
    except (OSError, ValueError):
        return None
    return next((config for config in configs if config.parent.name == main), None) or (
        configs[-1] if configs else None
    )


def _expanded(folder: str) -> Path:
    return Path(os.path.expanduser(folder))  # noqa: PTH111 (pathlib raises where no home is known)


def _written(file: Path) -> float:
    return file.stat().st_mtime


def _revision(folder: Path) -> str | None:
    reference = folder / "refs" / "main"
    return reference.read_text().strip() if reference.is_file() else None
