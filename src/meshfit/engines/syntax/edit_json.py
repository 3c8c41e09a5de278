"""A JSON file, with comments or without, with some options set otherwise, every other character as it was."""

import json
from collections.abc import Sequence
from typing import Any

import yaml

from meshfit.engines.layout_options import Options
from meshfit.engines.syntax.blocks import without_comments
from meshfit.engines.syntax.setting import Setting


def edited_json(text: str, _settings: Sequence[Setting], changes: Options) -> str:
    """``text`` with ``changes`` made; new options stand first in their block."""
    for name, value in changes.items():
        text = _without(text, name) if value is None else _with(text, name.split("."), value)
    return text


def _root(text: str) -> yaml.MappingNode:
    """The object as YAML has it, whose nodes know where they begin and end."""
    node = yaml.compose(without_comments(text), Loader=yaml.SafeLoader)
    assert isinstance(node, yaml.MappingNode), "read as one before"
    return node


def _index(block: yaml.MappingNode, key: str) -> int | None:
    return next((at for at, (name, _) in enumerate(block.value) if name.value == key), None)


def _with(text: str, path: list[str], value: Any) -> str:
    """The text with the option at ``path`` set, in blocks of its own where those are not there."""
    block = _root(text)
    for depth, key in enumerate(path):
        at = _index(block, key)
        rest = path[depth + 1 :]
        if at is None:
            return _inserted(text, block, key, _nested(rest, value))
        held = block.value[at][1]
        if not rest or not isinstance(held, yaml.MappingNode):
            new = json.dumps(_nested(rest, value))
            return text[: held.start_mark.index] + new + text[held.end_mark.index :]
        block = held
    raise AssertionError("a name has a part")


def _nested(path: list[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _inserted(text: str, block: yaml.MappingNode, key: str, value: Any) -> str:
    """The text with one more option in front of those of a block, set off as its first one is."""
    written, opened = f"{json.dumps(key)}: {json.dumps(value)}", block.start_mark.index + 1
    if not block.value:
        return text[:opened] + written + text[block.end_mark.index - 1 :]
    first = block.value[0][0].start_mark.index
    return f"{text[:first]}{written},{text[opened:first] or ' '}{text[first:]}"


def _without(text: str, name: str) -> str:
    """The text without an option; as it is where there is none."""
    block = _root(text)
    *blocks, last = name.split(".")
    for key in blocks:
        at = _index(block, key)
        held = None if at is None else block.value[at][1]
        if not isinstance(held, yaml.MappingNode):
            return text
        block = held
    at = _index(block, last)
    if at is None:
        return text
    key, value = block.value[at]
    if at + 1 < len(block.value):
        return text[: key.start_mark.index] + text[block.value[at + 1][0].start_mark.index :]
    before = block.value[at - 1][1].end_mark if at else block.start_mark
    return text[: before.index + (0 if at else 1)] + text[value.end_mark.index :]
