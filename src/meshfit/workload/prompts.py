"""Prompts with their answers, as tokens of which the answers alone are learned."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshfit.errors import InputError

END_TOKEN = 0
"""After every answer, and a target itself: where a document ends."""

IntArray = NDArray[np.int64]


def read_prompts(path: str) -> list[IntArray]:
    """The documents of a JSON Lines file, one array of tokens each: a byte a token.

    A line is ``{"prompt": TEXT, "answer": TEXT}``. Tokens of the prompt are complements: no targets.

    Raises:
        InputError: the file cannot be read, is empty, or a line of it is something else.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"data.path {path!r} cannot be read ({error})") from None
    lines = text.split("\n")  # no other line break ends a line of JSON Lines: text may hold them
    documents = [
        _document(line, f"{path}, line {number}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not documents:
        raise InputError(f"data.path {path!r} holds no document")
    return documents


def _document(line: str, where: str) -> IntArray:
    prompt, answer = _prompt_and_answer(line, where)
    try:
        return np.concatenate([~_tokens(prompt), _tokens(answer), [END_TOKEN]])
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: no text ({error.reason})") from None


def _prompt_and_answer(line: str, where: str) -> tuple[str, str]:
    try:
        found: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON ({error.msg})") from None
    if not (
        isinstance(found, dict)
        and set(found) == {"prompt", "answer"}
        and all(isinstance(text, str) and "\0" not in text for text in found.values())
    ):
        raise InputError(f'{where}: write {{"prompt": "...", "answer": "..."}}, without zero bytes')
    return found["prompt"], found["answer"]


def _tokens(text: str) -> IntArray:
    return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64)
