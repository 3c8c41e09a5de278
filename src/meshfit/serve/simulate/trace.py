"""Traces of requests: when each arrived and how long it was.

Read are CSV files with one request a line and JSON lines, under the column names of meshfit, of the
Azure LLM inference traces and of Mooncake's::

    arrival_s  prompt_tokens   output_tokens    [priority] [prefix] [prefix_tokens]
    TIMESTAMP  ContextTokens   GeneratedTokens
    timestamp  input_length    output_length    hash_ids      (milliseconds; 512 tokens a hash)
"""

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from meshfit.errors import InputError, shown
from meshfit.serve.simulate.request import SegmentKey

_MOONCAKE_SEGMENT_TOKENS = 512


@dataclass(frozen=True, kw_only=True)
class TracedRequest:
    """One line of a trace; ``arrival_s`` counts from the first of them."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    priority: int = 0
    prefix: tuple[SegmentKey, ...] = ()
    segment_tokens: int = 0


def read_trace(path: Path) -> list[TracedRequest]:
    """The requests of a trace in order of arrival.

    Raises:
        InputError: it can't be read, is of no known form, or a line is wrong; with the line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"trace {path} cannot be read: {error}") from None
    lines = _json_lines(text, path) if text.lstrip().startswith("{") else _csv_lines(text)
    requests = [_request(line, f"{path}, line {number}") for number, line in lines]
    if not requests:
        raise InputError(f"trace {path} holds no requests")
    requests.sort(key=lambda request: request.arrival_s)
    first_s = requests[0].arrival_s
    return [replace(request, arrival_s=request.arrival_s - first_s) for request in requests]


def _csv_lines(text: str) -> Iterable[tuple[int, Mapping[str, Any]]]:
    return enumerate(csv.DictReader(text.splitlines()), start=2)


def _json_lines(text: str, path: Path) -> Iterable[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise InputError(f"{path}, line {number} is no JSON object: {shown(line)}")
        yield number, document


def _request(line: Mapping[str, Any], where: str) -> TracedRequest:
    if "arrival_s" in line:
        names, arrival = ("prompt_tokens", "output_tokens"), _number(line, "arrival_s", where)
    elif "TIMESTAMP" in line:
        names, arrival = ("ContextTokens", "GeneratedTokens"), _date(line["TIMESTAMP"], where)
    elif "timestamp" in line:
        names = ("input_length", "output_length")
        arrival = _number(line, "timestamp", where) / 1e3
    else:
        raise InputError(
            f"{where}: no column with the time of arrival; write arrival_s, prompt_tokens, "
            f"output_tokens (found {', '.join(map(str, line)) or 'none'})"
        )
    prompt, output = (_count(line, name, where) for name in names)
    prefix, segment_tokens = _prefix(line, prompt, where)
    return TracedRequest(
        arrival_s=arrival,
        prompt_tokens=prompt,
        output_tokens=output,
        priority=int(_number(line, "priority", where)) if line.get("priority") else 0,
        prefix=prefix,
        segment_tokens=segment_tokens,
    )


def _prefix(
    line: Mapping[str, Any], prompt_tokens: int, where: str
) -> tuple[tuple[SegmentKey, ...], int]:
    if isinstance(hashes := line.get("hash_ids"), list):
        if not all(isinstance(one, SegmentKey) for one in hashes):
            raise InputError(f"{where}: hash_ids {shown(hashes)} are not all numbers or words")
        return tuple(hashes), _MOONCAKE_SEGMENT_TOKENS
    if line.get("prefix"):
        tokens = _count(line, "prefix_tokens", where)
        if tokens > prompt_tokens:
            raise InputError(
                f"{where}: prefix_tokens {tokens} are more than the prompt's {prompt_tokens}"
            )
        return (str(line["prefix"]),), tokens
    return (), 0


def _parsed(
    line: Mapping[str, Any], name: str, where: str, kind: Callable[[Any], float], what: str
) -> float:
    if line.get(name) is None:
        raise InputError(f"{where}: {name} is missing")
    try:
        value = kind(line[name])
    except (TypeError, ValueError, OverflowError):
        value = -1
    if not 0 <= value < float("inf"):
        raise InputError(f"{where}: {name} {shown(line[name])} is no {what}")
    return value


def _number(line: Mapping[str, Any], name: str, where: str) -> float:
    return _parsed(line, name, where, float, "number of at least 0")


def _count(line: Mapping[str, Any], name: str, where: str) -> int:
    count = int(_parsed(line, name, where, _whole, "whole number"))
    if count < 1:
        raise InputError(f"{where}: {name} {count} must be at least 1")
    return count


def _whole(value: Any) -> int:
    """Of a word or a number, which JSON may write as 600.0.

    Raises:
        ValueError, TypeError: it is no whole number.
    """
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError
    return int(value)


def _date(text: Any, where: str) -> float:
    try:
        found = datetime.fromisoformat(str(text).strip())
    except ValueError:
        raise InputError(f"{where}: TIMESTAMP {shown(text)} is no date and time") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
