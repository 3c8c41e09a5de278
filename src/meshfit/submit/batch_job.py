"""What is asked of a scheduler, and what it says of it. Nothing here calls one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from meshfit.cluster.topology import AcceleratorSpec
from meshfit.record.schema import Outcome

Phase = Literal["waiting", "running", "ended"]


@dataclass(frozen=True, kw_only=True)
class BatchJob:
    """Nodes for one command, which runs on the first of them (Kubernetes: on each).

    Attributes:
        name: for people; several jobs may have the same.
        mark: unique, by which a job is found again whose id was lost.
        command: with its arguments, run in ``folder``.
        log: where what it prints goes.
        hosts: nodes it must get, in this order; empty: any.
        time_limit_s: wall clock after which the scheduler ends it; None: the scheduler's own limit.
        after: ids of jobs that must have ended well before it starts.
        lane: jobs of one lane run one after another; None: whenever there are nodes.
    """

    name: str
    mark: str
    command: tuple[str, ...]
    folder: Path
    log: Path
    num_nodes: int
    devices_per_node: int
    accelerator: AcceleratorSpec
    hosts: tuple[str, ...] = ()
    time_limit_s: float | None = None
    after: tuple[str, ...] = ()
    lane: str | None = None


@dataclass(frozen=True, kw_only=True)
class JobState:
    """Where a job stands.

    Attributes:
        word: the scheduler's own, as ``PENDING``.
        why: its reason, empty without one.
        ended_well: its command has done all it was to do.
        outcome: else, of the launch that was under way.
    """

    phase: Phase
    word: str
    why: str = ""
    ended_well: bool = False
    outcome: Outcome = "interrupted"

    def __str__(self) -> str:
        return f"{self.word} ({self.why})" if self.why else self.word


class Scheduler(Protocol):
    """A cluster's own engine for jobs. It is made of its options, by name, as a person gave them."""

    @property
    def name(self) -> str:
        """As people call it."""

    def script(self, job: BatchJob) -> tuple[str, str]:
        """Name and text of the file that is submitted.

        Raises:
            InputError: it has no way to say what is asked.
        """

    def submit(self, script: Path) -> str:
        """The id of the job that the file in ``script`` describes.

        Raises:
            RunError: it is refused; with what the scheduler said.
        """

    def find(self, mark: str) -> str | None:
        """The id of the job with this mark; None where there is none.

        Raises:
            RunError: it does not answer.
        """

    def states(self, ids: Sequence[str]) -> dict[str, JobState]:
        """Where each job stands; none of those that cannot be asked for now."""

    def cancel(self, ids: Sequence[str]) -> None:
        """Ends jobs, as far as they have not ended."""

    def cancel_line(self, ids: Sequence[str]) -> str:
        """The command by which a person does so."""
