"""Commands of containers, as manifests of Kubernetes and Compose hold them, as a shell script."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping

import yaml

_IS_MANIFEST = re.compile(r"^(apiVersion|services)\s*:", re.MULTILINE)

_KEYS = {"apiVersion": ("command", "args"), "services": ("entrypoint", "command")}
"""By the key that tells a manifest: what replaces the command of an image, and what is added to it."""

_Placed = tuple[int, str]
"""A line, from 0, and what stands there of a command."""


def as_script(text: str) -> str | None:
    """A script with the commands of a manifest's containers, each word in its line; None where ``text`` is
    no manifest, or none that can be read."""
    kind = _IS_MANIFEST.search(text)
    if kind is None:
        return None
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        containers = [one for document in documents for one in _containers(document)]
    except (yaml.YAMLError, RecursionError):
        return None
    lines: dict[int, str] = {}
    for container in containers:
        _write(lines, _command(container, *_KEYS[kind[1]]))
    return "\n".join(lines.get(at, "") for at in range(max(lines, default=-1) + 1))


def _containers(node: yaml.Node | None) -> Iterator[Mapping[str, yaml.Node]]:
    """Every mapping with an image, by key."""
    if isinstance(node, yaml.MappingNode):
        held = {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}
        if isinstance(held.get("image"), yaml.ScalarNode):
            yield held
        for value in held.values():
            yield from _containers(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _containers(value)


def _command(container: Mapping[str, yaml.Node], entry: str, arguments: str) -> Iterator[_Placed]:
    """What a container starts; its image stands for the command where nothing replaces it."""
    yield from _words(container.get(entry, container["image"]))
    if arguments in container:
        yield from _words(container[arguments])


def _words(node: yaml.Node) -> Iterator[_Placed]:
    """Words of a list, whatever is in them; a text as it is, which a shell divides."""
    items = node.value if isinstance(node, yaml.SequenceNode) else [node]
    for item in items:
        if isinstance(item, yaml.ScalarNode):
            begins_below = "\n" if item.style == "|" else ""
            word = item.value if item is node else shlex.quote(begins_below + item.value.rstrip())
            yield item.start_mark.line, word


def _write(lines: dict[int, str], words: Iterable[_Placed]) -> None:
    """One command, continued from line to line; what the file has behind words that follow goes up to
    those."""
    placed = list(words)
    for index in range(len(placed) - 2, -1, -1):
        line, word = placed[index]
        placed[index] = (min(line, placed[index + 1][0]), word)
    last = placed[0][0]
    for line, word in placed:
        for between in range(last, line):
            lines[between] = f"{lines.get(between, '')} \\"
        first, *rest = word.split("\n")
        lines[line] = f"{lines.get(line, '')} {first}"
        lines |= {line + offset: row for offset, row in enumerate(rest, start=1)}
        last = line + len(rest)
