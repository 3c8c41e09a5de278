"""A job as a script for ``sbatch``."""

import re
import shlex
from collections.abc import Iterator, Mapping
from math import floor
from pathlib import Path

from meshfit.errors import InputError, shown
from meshfit.submit.batch_job import BatchJob

_NAME = re.compile(r"[a-z][a-z-]*")
_QUOTABLE = re.compile(r'[^"\\\x00-\x1f\x7f]*')
"""What sbatch takes between double quotes."""

_OURS = (
    "nodes",
    "ntasks-per-node",
    "job-name",
    "comment",
    "output",
    "dependency",
    "kill-on-invalid-dep",
    "array",
)
"""Options that the sweep rests on."""

LEFT_OUT = "none"
"""In place of a value: one of our own options is not to be asked for."""


def batch_script(job: BatchJob, options: Mapping[str, str]) -> str:
    """The script: one task on the first node, all nodes whole; ``options`` go before ours, or
    (``LEFT_OUT``) take one away.

    It becomes the command (``exec``), so that Slurm's signals reach it. It is not requeued: a job
    that lost its node is a result to tell, and submitting it again is up to a person. A time limit
    is in whole minutes, downwards: it bounds what is spent.
    """
    lines = [f"#SBATCH {word}" for word in _options(job, options)]
    command = shlex.join(job.command)
    return "\n".join(
        ["#!/bin/bash", *lines, f"cd {shlex.quote(str(job.folder))} || exit", f"exec {command}", ""]
    )


def require_options(options: Mapping[str, str]) -> None:
    """That options are written as sbatch takes them.

    Raises:
        InputError: one is not, or the sweep rests on it.
    """
    for name, value in options.items():
        if name in _OURS:
            raise InputError(f"--with {name}: the sweep sets it itself; leave it out")
        if not _NAME.fullmatch(name) or not _QUOTABLE.fullmatch(value):
            raise InputError(
                f"--with {name}={value}: write an option of sbatch by its long name, as in "
                f"partition=gpu or account=lab"
            )


def _options(job: BatchJob, given: Mapping[str, str]) -> Iterator[str]:
    defaults = {
        "job-name": job.lane or _title(job.name),  # singleton goes by the name
        "comment": job.mark,
        "nodes": str(job.num_nodes),
        "ntasks-per-node": "1",
        "output": _file(job.log),
        "exclusive": "",
        "mem": "0",
        "no-requeue": "",
    }
    if job.accelerator.device_type != "cpu":
        defaults["gpus-per-node"] = str(job.devices_per_node)
    if job.hosts:
        defaults["nodelist"] = ",".join(job.hosts)
    if job.time_limit_s is not None:
        defaults["time"] = str(max(1, floor(job.time_limit_s / 60)))
    if conditions := _conditions(job):
        defaults |= {"dependency": conditions, "kill-on-invalid-dep": "yes"}
    left_out = {name for name in defaults if given.get(name) == LEFT_OUT}
    for name, value in (defaults | dict(given)).items():
        if name in left_out:
            continue
        yield f"--{name}={_word(value)}" if value else f"--{name}"


def _title(name: str) -> str:
    """``name`` without what sbatch could not take."""
    return "".join(each if _QUOTABLE.fullmatch(each) else "_" for each in name)


def _file(path: Path) -> str:
    """``path`` as sbatch takes the name of a file, where % stands for something.

    Raises:
        InputError: it has characters that no quoting brings through a directive.
    """
    if not _QUOTABLE.fullmatch(str(path)):
        raise InputError(
            f"sbatch cannot be told {shown(str(path))}: choose a run folder without quotes and "
            f"backslashes (--out)"
        )
    return str(path).replace("%", "%%")


def _conditions(job: BatchJob) -> str:
    afterok = [f"afterok:{':'.join(job.after)}"] if job.after else []
    singleton = ["singleton"] if job.lane else []
    return ",".join(afterok + singleton)


def _word(value: str) -> str:
    """As sbatch reads words of a directive: it heeds quotes."""
    return value if re.fullmatch(r"[\w./:,@%+=\[\]*-]+", value) else f'"{value}"'
