"""Layouts as a person writes them: keys of a block, text of an option, a file."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshfit.errors import InputError
from meshfit.files import read_yaml_mapping, validate
from meshfit.job.key_values import key_values
from meshfit.job.schema import LayoutFile
from meshfit.mesh.spec import LayoutSpec, make_layout, stages_of_text
from meshfit.profile import EngineProfile

_SCHEDULE_SPELLINGS = {
    "gpipe": "gpipe",
    "1f1b": "1f1b",
    "interleaved1f1b": "interleaved_1f1b",
    "interleaved": "interleaved_1f1b",
    "dualpipev": "dualpipe_v",
    "zbv": "zbv_zero_bubble",
    "zbvzerobubble": "zbv_zero_bubble",
    "interleavedzerobubble": "interleaved_zero_bubble",
    "loopedbfs": "looped_bfs",
}


def parse_layout_text(text: str) -> dict[str, Any]:
    """The keys of ``tp=4,pp=2,stage_layers=3:5``; ``7:8x14:7`` is 7, fourteen times 8, and 7.

    Raises:
        InputError: not ``key=value`` pairs, a key twice or unknown, or a value of the wrong kind.
    """
    pairs = key_values(text, "--layout", "tp=4,pp=2")
    keys = {key: _layout_value(value) for key, value in pairs.items()}
    return layout_keys(validate(LayoutFile, keys, "--layout"))


def _layout_value(text: str) -> int | bool | str | list[int]:
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    if (stages := stages_of_text(text)) is not None:
        return stages
    return {"true": True, "false": False}.get(text.lower(), text)


def layout_keys(file: LayoutFile | None) -> dict[str, Any]:
    """Keys that are given, schedules in our spelling."""
    keys = file.model_dump(exclude_none=True) if file else {}
    if "schedule" in keys:
        keys["schedule"] = schedule_of_text(keys["schedule"])
    return keys


def schedule_of_text(text: str) -> str:
    """``1F1B``, ``GPipe``, ``Interleaved1F1B`` in our spelling; others stay for the rules to refuse."""
    return _SCHEDULE_SPELLINGS.get(re.sub(r"[^a-z0-9]", "", text.lower()), text)


def layout_of_keys(keys: Mapping[str, Any], profile: EngineProfile) -> LayoutSpec:
    """A layout in which keys that are left out mean what they mean to an engine."""
    return make_layout(
        keys,
        sequence_parallel=profile.sequence_parallel,
        zero_stage=profile.default_zero_stage,
    )


def baseline_of(
    value: str | LayoutFile | None, base: Path, profile: EngineProfile
) -> LayoutSpec | None:
    """The layout that others are compared with: a block of the job, or a file relative to ``base``.

    Raises:
        InputError: the file cannot be read, or holds no layout.
    """
    if value is None:
        return None
    if isinstance(value, LayoutFile):
        return layout_of_keys(layout_keys(value), profile)
    path = base / value
    document = read_yaml_mapping(path)
    block = document.get("layout", document)
    if not isinstance(block, Mapping):
        raise InputError(f"{path}: layout must hold keys and values, found {block!r}")
    return layout_of_keys(layout_keys(validate(LayoutFile, block, str(path))), profile)
