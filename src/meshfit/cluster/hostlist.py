"""Host lists as schedulers write them: ``node[01-32]``, ``a[1,3-5]b,c``."""

import re

from meshfit.errors import InputError

_MOST_HOSTS = 1_000_000
_PART = re.compile(r"([^\[\],]+(?:\[[^\[\]]*\])?|\[[^\[\]]*\])+")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def expand_hosts(text: str) -> tuple[str, ...]:
    """The hosts that ``text`` names, in order; zero-padding is kept.

    Raises:
        InputError: unbalanced brackets, an empty or falling range, or the same host twice.
    """
    hosts = tuple(host for part in _split(text) for host in _expand(part, text))
    if len(set(hosts)) != len(hosts):
        twice = next(host for host in hosts if hosts.count(host) > 1)
        raise InputError(f"hosts {text!r}: {twice} is named twice")
    return hosts


def _split(text: str) -> list[str]:
    """Parts between the commas that are outside brackets."""
    parts = [part.strip() for part in re.split(r",(?![^\[]*\])", text)]
    if not all(parts) or not all(_PART.fullmatch(part) for part in parts):
        raise InputError(f"hosts {text!r} is not a host list; write it like 'node[01-32]'")
    return parts


def _expand(part: str, text: str) -> list[str]:
    """One part, its first bracket first."""
    before, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    ranges, _, after = rest.partition("]")
    numbers = [number for item in ranges.split(",") for number in _numbers(item.strip(), text)]
    return [before + number + tail for number in numbers for tail in _expand(after, text)]


def _numbers(item: str, text: str) -> list[str]:
    match = _RANGE.fullmatch(item)
    if match is None:
        raise InputError(f"hosts {text!r}: {item!r} is not a number or a range like 01-32")
    first, last = match.group(1), match.group(2) or match.group(1)
    count = int(last) - int(first) + 1
    if not 0 < count <= _MOST_HOSTS:
        raise InputError(f"hosts {text!r}: the range {item} must rise, and name at most a million")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
