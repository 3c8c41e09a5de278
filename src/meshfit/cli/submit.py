"""The options by which ``fit`` and ``run`` hand their launches to a cluster's scheduler."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from meshfit.errors import InputError, nearest_name
from meshfit.funnel.submit.allocated import Allocated
from meshfit.funnel.submit.submitted import Submitted
from meshfit.funnel.submit.submitting import SubmitOptions
from meshfit.funnel.sweep.fit import HERE
from meshfit.funnel.sweep.runner import SweepRunner
from meshfit.submit.schedulers import SCHEDULERS

ALLOCATION = "allocation"

SubmitTo = Annotated[
    str | None,
    typer.Option(
        "--submit",
        metavar="SCHEDULER",
        help="Do the launches in jobs of slurm or kubernetes, on nodes of the job's cluster; or "
        "(allocation) on those of the Slurm job that this command runs in (default: on this machine).",
        show_default=False,
    ),
]
OneJobEach = Annotated[
    bool,
    typer.Option(
        "--one-job-each",
        help="With --submit: one job a candidate; else one job for all, on the same nodes.",
    ),
]
MaxNodes = Annotated[
    int | None,
    typer.Option(
        "--max-nodes",
        min=1,
        help="With --submit: nodes that jobs may hold at a time (run.budget bounds GPU-hours).",
        show_default=False,
    ),
]
SchedulerOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="NAME=VALUE",
        help="With --submit (may be repeated): an option of sbatch by its long name, as partition=gpu; "
        "for kubernetes volume=CLAIM:/path, image, namespace, runtime.",
        show_default=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class SubmitWords:
    """What a person asked for."""

    to: str | None
    each: bool = False
    max_nodes: int | None = None
    options: Sequence[str] = field(default_factory=list)


def runner_of(
    words: SubmitWords, job: Path, *, rank_order: str | None, given_layouts: bool
) -> SweepRunner:
    """What does the launches of a sweep of the file ``job``.

    Raises:
        InputError: no such scheduler, none to be reached, or an option without ``--submit``.
    """
    if words.to is None:
        if words.each or words.max_nodes is not None or words.options:
            raise InputError("--one-job-each, --max-nodes and --with go with --submit")
        return HERE
    if words.to == ALLOCATION:
        if words.each or words.max_nodes is not None or words.options:
            raise InputError(
                "--submit allocation asks for nothing: --one-job-each, --max-nodes and --with go with "
                "the schedulers"
            )
        return Allocated()
    if words.to not in SCHEDULERS:
        nearest = nearest_name(words.to, (*SCHEDULERS, ALLOCATION)) or next(iter(SCHEDULERS))
        raise InputError(
            f"--submit {words.to!r}: use {', '.join(SCHEDULERS)} or {ALLOCATION}; try {nearest}"
        )
    options = SubmitOptions(
        job_file=job,
        rank_order=rank_order,
        given_layouts=given_layouts,
        each=words.each,
        max_nodes=words.max_nodes,
    )
    given = dict(_pair(text) for text in words.options)
    return Submitted(SCHEDULERS[words.to](given), options)


def _pair(text: str) -> tuple[str, str]:
    """``NAME=VALUE``, or ``NAME`` alone."""
    name, _, value = text.partition("=")
    return name.strip().removeprefix("--"), value.strip()
