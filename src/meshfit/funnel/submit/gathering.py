"""Rows of a sweep's jobs, gathered into its run folder; also of a job that was killed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from meshfit.errors import RunError
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.funnel.sweep.progress import Progress
from meshfit.funnel.sweep.sweep import (
    SweepEnd,
    broken_ground,
    judged,
    left_to_run,
    row_of,
    standing,
)
from meshfit.funnel.sweep.tasks import Task, TaskKey, key_of
from meshfit.launch.evidence import last_line, read_text
from meshfit.launch.progress import describe
from meshfit.launch.supervise import LaunchOutcome
from meshfit.record.files import read_document, write_json_atomically
from meshfit.record.heartbeat import read_heartbeats
from meshfit.record.schema import SCHEMA_VERSION, Failure, Record
from meshfit.record.store import RecordStore
from meshfit.record.submission import PartFolder, SubmittedPart, UnderWay
from meshfit.submit.batch_job import JobState


@dataclass(frozen=True, kw_only=True)
class OpenPart:
    """A job whose end is not gathered yet; ``called`` is how people call it: ``Slurm job 12``."""

    files: PartFolder
    part: SubmittedPart
    id: str
    called: str


class Gathering:
    """The rows of one sweep's run folder, and those that its jobs add to them."""

    def __init__(self, tasks: Sequence[Task], folder: RunFolder, progress: Progress) -> None:
        self._tasks = {task.key: task for task in tasks}
        self._folder = folder
        self._progress = progress
        self._plan_hash = tasks[0].request.plan_hash
        self._store = RecordStore(folder.root)
        self._stopped_by = "run.budget"
        self.rows = self._store.records(self._plan_hash)
        self._num_old_rows = len(self.rows)

    @property
    def left(self) -> list[Task]:
        """Tasks that are left to run."""
        return left_to_run(self._tasks.values(), self.rows)

    @property
    def end(self) -> SweepEnd:
        """How the sweep ended.

        Raises:
            RunError: no candidate has a row.
        """
        standing_rows = tuple(standing(self.rows))
        left = tuple(task.title for task in self.left)
        if not any(self._tasks[key_of(row)].is_candidate for row in standing_rows):
            raise RunError(f"nothing was measured: {self._stopped_by}; the same command goes on")
        return SweepEnd(records=standing_rows, not_run=left, stopped_by=self._stopped_by)

    def collect(self, part: OpenPart) -> None:
        """Takes over what ``part`` has added since."""
        known = {_identity(row) for row in self.rows}
        for row in RecordStore(part.files.root).records(self._plan_hash):
            if _identity(row) not in known:
                self._add(judged(self._tasks[key_of(row)], row, self.rows))

    def is_done(self, part: OpenPart) -> bool:
        """Whether every launch of ``part`` has its row."""
        return not self._unsettled(part)

    def state_by_rows(self, part: OpenPart) -> JobState | None:
        """Where the scheduler says nothing: that a job whose rows are all there has ended."""
        if not self.is_done(part):
            return None
        return JobState(phase="ended", word="all rows are there", ended_well=True)

    def close(self, part: OpenPart, state: JobState) -> None:
        """Takes over the rest of a job that has ended: of a killed one, the launch it was at."""
        self.collect(part)
        if self._unsettled(part) and not state.ended_well:
            self._stopped_by = f"the end of {part.called}: {_with_last_words(state, part)}"
            if (row := self._row_of_killed(part, state)) is not None:
                self._add(row)
        part.files.under_way.unlink(missing_ok=True)
        _note_end(part, state.word, state.why)

    def drop(self, part: OpenPart) -> None:
        """Leaves a job out that cannot do anything, without a row."""
        _note_end(part, "cancelled", "what it rests on failed")

    def require_ground(self) -> None:
        """That what every other launch rests on has not failed meanwhile.

        Raises:
            RunError: it has.
        """
        last = {key_of(row): row for row in self.rows[self._num_old_rows :]}
        for task in self.left:
            if not task.is_candidate and task.key in last and last[task.key].outcome != "ok":
                raise RunError(broken_ground(task, last[task.key], self._folder))

    def _unsettled(self, part: OpenPart) -> list[Task]:
        return left_to_run([self._tasks[key] for key in part.part.tasks], self.rows)

    def _add(self, row: Record) -> None:
        self._store.append(row)
        self.rows.append(row)
        self._progress.finish(self._tasks[key_of(row)], row)

    def _row_of_killed(self, part: OpenPart, state: JobState) -> Record | None:
        """Of the launch that was under way; where none was, of the candidate whose job it is. None
        where the job is of several, of which none had begun."""
        tasks = self._unsettled(part)
        if part.files.under_way.exists():
            at = read_document(UnderWay, part.files.under_way)
            if at.task in [task.key for task in tasks]:  # else its row came just before the end
                return self._row_under_way(part, state, at)
        if len({task.request.candidate for task in tasks}) > 1:
            return None
        message = f"{part.called} ended outside any launch: {_with_last_words(state, part)}"
        ended = LaunchOutcome(outcome="interrupted", failure=Failure(message=message), seconds=0.0)
        return row_of(tasks[0], ended, folder=self._folder, started_at=datetime.now(UTC))

    def _row_under_way(self, part: OpenPart, state: JobState, at: UnderWay) -> Record:
        task = self._tasks[at.task]
        beats = read_heartbeats(task.folder)
        last_s = max((beat.time for beat in beats.values()), default=at.started_at)
        where = f", when {describe(beats, task.request.layout.world_size)}" if beats else ""
        ended = LaunchOutcome(
            outcome=state.outcome,
            failure=Failure(message=f"{part.called} ended: {state}{where}"),
            seconds=max(0.0, last_s - at.started_at),
        )
        started_at = datetime.fromtimestamp(at.started_at, UTC)
        return row_of(task, ended, folder=self._folder, started_at=started_at)


def _identity(row: Record) -> tuple[TaskKey, str, float]:
    """Of the one attempt that a row is of."""
    return key_of(row), row.started_at, row.seconds


def _note_end(part: OpenPart, word: str, why: str) -> None:
    document = {"schema_version": SCHEMA_VERSION, "word": word, "why": why}
    write_json_atomically(part.files.end, document)


def _with_last_words(state: JobState, part: OpenPart) -> str:
    """How a job ended, with the last line that it printed."""
    words = last_line(read_text(part.files.log))
    return f"{state}; its last words: {words}" if words else str(state)
