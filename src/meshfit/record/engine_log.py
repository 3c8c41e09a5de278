"""What the log of a training engine says of a run: as it was printed, in our units, nothing added."""

from dataclasses import dataclass, field

from meshfit.record.schema import SCHEMA_VERSION


@dataclass(frozen=True, kw_only=True)
class LoggedStep:
    """What is printed at one optimizer step. A figure that is not printed is None.

    Attributes:
        start: which start of the run it is of, from 0; a restarted run repeats numbers of steps.
        step: its number, as the engine counts.
        num_steps: how many steps ``step_s`` is the mean of; this one is the last of them.
        step_s: seconds of one step; the slowest rank's where several print.
        global_batch_size: sequences of this step; it may grow in a run.
        mfu: a fraction, by the engine's own formula and peak.
        flops_per_s: of one rank, by the engine's own formula.
    """

    start: int
    step: int
    num_steps: int
    step_s: float | None = None
    global_batch_size: int | None = None
    loss: float | None = None
    gradient_norm: float | None = None
    mfu: float | None = None
    flops_per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class LoggedMemory:
    """Highest use of memory that any line states, in bytes of one rank.

    Attributes:
        allocated: held by tensors; reserved: by PyTorch's allocator; resident: by the whole process
            in host memory.
        allocated_rank, reserved_rank: global rank that has it, None where the engine does not say.
    """

    allocated: int | None = None
    reserved: int | None = None
    resident: int | None = None
    allocated_rank: int | None = None
    reserved_rank: int | None = None


@dataclass(frozen=True, kw_only=True)
class EngineLog:
    """One log.

    Attributes:
        engine: name of a profile; engine_version: as the log has it, None where it does not.
        form: what kind of log it is, in words.
        stated: of the job, in the words of a job and its layout: ``world_size``,
            ``global_batch_size``, ``sequence_length``, degrees.
        num_starts: how often training began or went on.
        steps: of all starts, in order.
        step_time_from: what ``step_s`` rests on, in words; empty where there is none.
        run_mean_step_s: the mean of all steps of the last start, the first one and what came between
            steps included, where that is printed at the end.
        absent: figure -> why the log does not have it.
        notes: what was passed over in reading.
    """

    schema_version: int = SCHEMA_VERSION
    engine: str
    engine_version: str | None = None
    form: str
    stated: dict[str, int] = field(default_factory=dict)
    num_starts: int
    steps: tuple[LoggedStep, ...]
    step_time_from: str = ""
    run_mean_step_s: float | None = None
    memory: LoggedMemory
    absent: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def losses(self) -> dict[int, float]:
        """Step -> loss; of a step that was run again, the last."""
        return {one.step: one.loss for one in self.steps if one.loss is not None}
