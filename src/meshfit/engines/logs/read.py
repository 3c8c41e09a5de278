"""A log of any engine: which one's it is, and what it says."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from meshfit.engines.accelerate.log import LOG as TRAINER
from meshfit.engines.accelerate.log import state_lines
from meshfit.engines.deepspeed.log import LOG as DEEPSPEED
from meshfit.engines.logs.assemble import assembled
from meshfit.engines.logs.form import LogForm
from meshfit.engines.logs.found import Found, is_of_step
from meshfit.engines.logs.lines import Line, log_lines
from meshfit.engines.megatron.log import LOG as MEGATRON
from meshfit.engines.torchtitan.log import LOG as TORCHTITAN
from meshfit.errors import InputError
from meshfit.record.engine_log import EngineLog

ENOUGH = 200
"""Statements of steps after which it is known whose log it is."""

LOGS: tuple[LogForm, ...] = (TORCHTITAN, MEGATRON, DEEPSPEED, TRAINER)


def read_log(path: Path, job: Mapping[str, int] = MappingProxyType({})) -> EngineLog:
    """What a log says.

    Args:
        job: what is known of the job, in the words of ``EngineLog.stated``; what the log states itself
            goes before it.

    Raises:
        InputError: it cannot be read, or holds no whole statement of a step of an engine that is known.
    """
    found = Found(_recognised(path))
    for line in _lines(path):
        found.take(line)
    return assembled(found, job)


def _lines(path: Path) -> Iterable[Line]:
    return state_lines(path) or log_lines(path)


def _recognised(path: Path) -> LogForm:
    """The kind of log of which most steps are stated at the beginning of a file."""
    counts = dict.fromkeys(range(len(LOGS)), 0)
    for line in _lines(path):
        for index, form in enumerate(LOGS):
            counts[index] += sum(map(is_of_step, form.printed(line)))
        if sum(counts.values()) >= ENOUGH:
            break
    best = max(counts, key=lambda index: counts[index])
    if not counts[best]:
        known = "; ".join(form.words for form in LOGS)
        raise InputError(f"{path} has no whole line of a training step in it as {known} has them")
    return LOGS[best]
