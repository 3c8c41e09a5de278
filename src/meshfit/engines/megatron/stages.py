"""Which layers each pipeline stage has, from the options that Megatron has for it."""

import re
from typing import Any

from meshfit.engines.syntax.setting import Setting, Settings
from meshfit.errors import InputError, shown

MOST_LAYERS = 10_000
"""Longer than any layout of stages that is written out."""


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
    """Virtual stages of a rank: named, or as many as the layers of one leave.

    Raises:
        InputError: its layers are no whole number of virtual stages.
    """
    if "--num-virtual-stages-per-pipeline-rank" in options:
        return options.count("--num-virtual-stages-per-pipeline-rank")
    if "--num-layers-per-virtual-pipeline-stage" not in options:
        return 1
    per_stage = options.count("--num-layers-per-virtual-pipeline-stage")
    ends = ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")
    layers += sum(options.is_on(name) for name in ends)
    is_even = not any(
        f"--decoder-{end}-pipeline-num-layers" in options for end in ("first", "last")
    )
    if is_even and layers % (pp * per_stage):
        raise InputError(
            f"--num-layers-per-virtual-pipeline-stage {per_stage} does not divide the "
            f"{layers / pp:g} layers of a stage (--num-layers {layers} over {pp})"
        )
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
    refusal = InputError(
        f"line {setting.line}: {setting.name} {shown(setting.value)}: write it like Et*3|t*4|t*3L"
    )
    for pattern in (r"\(([^()]*)\)\*(\d{1,4})", r"([A-Za-z])\*(\d{1,4})"):
        while match := re.search(pattern, text):
            if len(text) + len(match[1]) * int(match[2]) > MOST_LAYERS:
                raise refusal
            text = text[: match.start()] + match[1] * int(match[2]) + text[match.end() :]
    if not re.fullmatch(r"[A-Za-z|]+", text):
        raise refusal
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
