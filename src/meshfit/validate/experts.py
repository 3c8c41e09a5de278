"""Mixtures of experts, as a row's note describes them in words, else as their model is defined."""

import re
from dataclasses import dataclass

from meshfit.validate.public_models import public_sizes
from meshfit.validate.rows import NotModelledError, TruthRow

_COUNT = r"(\d+) (?:routed )?experts|experts?[ =:]+(\d+)"
_PER_TOKEN = r"top[- ]?k?[ =:]*(\d+)"
_WIDTH = r"(?:moe|expert)[ _-](?:ffn|width|intermediate)[a-z_]*[ =:]*(\d+)"
_SHARED = r"(\d+) shared"


@dataclass(frozen=True, kw_only=True)
class Experts:
    """What every layer has: ``per_token`` of ``count`` experts, each of ``width`` (None: that of a
    dense MLP), and ``shared`` of the same width that every token passes."""

    count: int
    per_token: int
    width: int | None = None
    shared: int = 0


def experts_of(row: TruthRow) -> Experts | None:
    """The experts of a row, None where its model is dense.

    Raises:
        NotModelledError: it has experts, and nothing says how many or how many are used.
    """
    if not row.text("arch").startswith("moe"):
        return None
    note = row.text("note").lower()
    public = public_sizes(row.text("model"))
    count = _number(_COUNT, note) or int(public.get("experts", 0))
    per_token = _number(_PER_TOKEN, note) or int(public.get("experts_per_token", 0))
    if not count or not per_token:
        raise NotModelledError("not stated: number of experts")
    return Experts(
        count=count,
        per_token=per_token,
        width=_number(_WIDTH, note),
        shared=_number(_SHARED, note) or 0,
    )


def _number(pattern: str, text: str) -> int | None:
    match = re.search(pattern, text)
    return None if match is None else int(next(group for group in match.groups() if group))
