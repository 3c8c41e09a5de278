"""Which layers each pipeline stage has, from the options that Megatron has for it."""

import re
from typing import Any

from meshfit.engines.syntax.setting import Setting, Settings
from meshfit.errors import InputError


def stages(options: Settings, pp: int) -> dict[str, Any]:
    """``vpp``, ``schedule`` and ``stage_layers`` of a layout, as far as they are stated.

    Raises:
        InputError: a layout of stages that cannot be read.
    """
    layers = options.whole("--num-layers", default=0) or 0
    by_stage = _by_layout(options)
    vpp = (
        len(by_stage) // pp
        if by_stage and len(by_stage) % pp == 0
        else _virtual(options, pp, layers)
    )
    found: dict[str, Any] = {
        "vpp": max(1, vpp),
        "schedule": "interleaved_1f1b" if vpp > 1 else "1f1b",
    }
    split = by_stage or _by_ends(options, pp, max(1, vpp), layers)
    return found | ({"stage_layers": split} if split else {})


def _virtual(options: Settings, pp: int, layers: int) -> int:
    """Virtual stages of a rank: named, or as many as the layers of one leave."""
    if (named := options.whole("--num-virtual-stages-per-pipeline-rank")) is not None:
        return named
    per_stage = options.whole("--num-layers-per-virtual-pipeline-stage")
    if not per_stage or pp < 1:
        return 1
    return max(1, layers // pp // per_stage)


def _by_layout(options: Settings) -> list[int] | None:
    """Decoder layers of every stage of ``--pipeline-model-parallel-layout "Et*3|(tt|)*29,tL"``."""
    setting = options.get("--pipeline-model-parallel-layout")
    if setting is None:
        return None
    return [stage.count("t") for stage in _expanded(setting).split("|")]


def _expanded(setting: Setting) -> str:
    """The layout with its repetitions written out: ``t*3`` is ttt, ``(tt|)*2`` is tt|tt|."""
    text = re.sub(r"[\s,]", "", str(setting.value))
    for pattern in (r"\(([^()]*)\)\*(\d{1,4})", r"([A-Za-z])\*(\d{1,4})"):
        while match := re.search(pattern, text):
            text = text[: match.start()] + match[1] * int(match[2]) + text[match.end() :]
    if not re.fullmatch(r"[A-Za-z|]+", text):
        raise InputError(
            f"line {setting.line}: {setting.name} {setting.value!r}: write it like Et*3|t*4|t*3L"
        )
    return text


def _by_ends(options: Settings, pp: int, vpp: int, layers: int) -> list[int] | None:
    """Layers of every stage where the first and the last rank's are given; None where they are not,
    or where the others cannot share the rest evenly."""
    first = options.whole("--decoder-first-pipeline-num-layers")
    last = options.whole("--decoder-last-pipeline-num-layers")
    given = [count for count in (first, last) if count is not None]
    inner = pp - len(given)
    if not given or pp < 2 or inner < 0:
        return None
    rest = layers - sum(given)
    if rest < 0 or (inner and rest % inner) or (not inner and rest):
        return None
    each = rest // inner if inner else 0
    ranks = [each if first is None else first, *[each] * (pp - 2), each if last is None else last]
    if any(count % vpp for count in ranks):
        return None
    return [count // vpp for _ in range(vpp) for count in ranks]
