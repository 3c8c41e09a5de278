"""Host lists as schedulers write them: ``node[01-32]``, ``a[1,3-5]b,c``."""

import math
import re
from collections import Counter

from meshfit.errors import InputError, shown

_MOST_HOSTS = 1_000_000
_PART = re.compile(r"([\w.:-]+(?:\[[^\[\]]*\])?|\[[^\[\]]*\])+")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


def expand_hosts(text: str) -> tuple[str, ...]:
    """The hosts that ``text`` names, in order; zero-padding is kept.

    Raises:
        InputError: unbalanced brackets, an empty or falling range, the same host twice, or more
            than a million hosts.
    """
    parts = _split(text)
    if sum(_count(part, text) for part in parts) > _MOST_HOSTS:
        raise InputError(f"hosts {shown(text)}: more than a million hosts")
    hosts = tuple(host for part in parts for host in _expand(part, text))
    if len(set(hosts)) != len(hosts):
        twice = Counter(hosts).most_common(1)[0][0]
        raise InputError(f"hosts {shown(text)}: {twice} is named twice")
    return hosts


def _split(text: str) -> list[str]:
    """Parts between the commas that are outside brackets."""
    parts = [part.strip() for part in re.split(r",(?![^\[]*\])", text)]
    if not all(parts) or not all(_PART.fullmatch(part) for part in parts):
        raise InputError(f"hosts {shown(text)} is not a host list; write it like 'node[01-32]'")
    return parts


def _count(part: str, text: str) -> int:
    """How many hosts a part names, without naming them."""
    brackets = re.findall(r"\[([^\]]*)\]", part)
    return math.prod(sum(len(_range(item, text)) for item in b.split(",")) for b in brackets)


def _expand(part: str, text: str) -> list[str]:
    """One part, its first bracket first."""
    before, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    ranges, _, after = rest.partition("]")
    numbers = [number for item in ranges.split(",") for number in _numbers(item, text)]
    return [before + number + tail for number in numbers for tail in _expand(after, text)]


def _numbers(item: str, text: str) -> list[str]:
    width = len(item.strip().partition("-")[0])
    return [str(number).zfill(width) for number in _range(item, text)]


def _range(item: str, text: str) -> range:
    """The numbers of ``07`` or ``01-32``."""
    match = _RANGE.fullmatch(item.strip())
    if match is None:
        raise InputError(
            f"hosts {shown(text)}: {shown(item.strip())} is not a number or a range like 01-32"
        )
    first, last = int(match.group(1)), int(match.group(2) or match.group(1))
    if not 0 < last - first + 1 <= _MOST_HOSTS:
        raise InputError(
            f"hosts {shown(text)}: the range {item.strip()} must rise, and name at most a million"
        )
    return range(first, last + 1)
