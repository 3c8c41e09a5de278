"""All launches of one layout reduced to what is compared: outcome, parity, speed, memory."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from meshfit.breakdown import MemoryBreakdown, Prediction
from meshfit.compare.timing import counted_steps
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.profiles import mean_profile
from meshfit.record.schema import Failure, Outcome, Parity, Record, StepProfile


@dataclass(frozen=True, kw_only=True)
class MeasuredCandidate:
    """One layout and what its launches found.

    Attributes:
        outcome: that of the first launch that did not end well, else ``ok``.
        parity: the first verdict that failed, else the strictest that was reached; None if none.
        step_s: timed steps of all repeats in order, each as long as its slowest rank took.
        repeat_medians_s: median timed step of each repeat.
        memory: of the rank with the highest total, over all repeats.
        profile: the mean of profiled steps over ranks and repeats; None where none was.
        predicted: as written into the requests before the runs.
    """

    layout: LayoutSpec
    outcome: Outcome
    parity: Parity | None
    failure: Failure | None
    step_s: tuple[float, ...]
    repeat_medians_s: tuple[float, ...]
    useful_tokens_per_step: int
    memory: MemoryBreakdown | None
    profile: StepProfile | None
    predicted: Prediction | None
    records: tuple[Record, ...]

    @property
    def step_time_s(self) -> float | None:
        """Median timed step over all repeats."""
        return statistics.median(self.step_s) if self.step_s else None

    @property
    def tokens_per_s(self) -> float | None:
        """Useful tokens of a step over the median step time."""
        median = self.step_time_s
        return self.useful_tokens_per_step / median if median else None

    @property
    def step_noise_s(self) -> float:
        """Half width within which two medians cannot be told apart.

        The larger of half the range of the repeats' medians and the notch of a box plot,
        1.57 IQR / sqrt(n) (McGill, Tukey and Larsen 1978): two medians whose ranges of this half
        width do not overlap differ at about the 95 % level. Infinite for fewer than two steps, which
        say nothing about noise.
        """
        if len(self.step_s) < 2:
            return math.inf
        low, _, high = statistics.quantiles(self.step_s, n=4, method="inclusive")
        notch = 1.57 * (high - low) / math.sqrt(len(self.step_s))
        drift = (max(self.repeat_medians_s) - min(self.repeat_medians_s)) / 2
        return max(notch, drift)


def measured_candidate(records: Sequence[Record], *, warmup_steps: int) -> MeasuredCandidate:
    """The launches of one layout as one row; ``records`` must not be empty.

    A launch that failed decides the outcome; figures come from the launches that ended well, so a
    layout that failed halfway still shows what it did.
    """
    failed = next((record for record in records if record.outcome != "ok"), None)
    timed = [r.result for r in records if r.result is not None and r.purpose == "measure"]
    by_repeat = [
        counted_steps({rank.rank: rank.step_s for rank in result.ranks}, warmup_steps)
        for result in timed
    ]
    reports = [rank for result in timed for rank in result.ranks]
    memories = [rank.memory for rank in reports if rank.memory]
    profiles = [rank.profile for rank in reports if rank.profile is not None]
    return MeasuredCandidate(
        layout=records[0].layout,
        outcome=failed.outcome if failed else "ok",
        parity=_deciding_parity([r.parity for r in records if r.parity is not None]),
        failure=failed.failure if failed else None,
        step_s=tuple(step for steps in by_repeat for step in steps),
        repeat_medians_s=tuple(statistics.median(steps) for steps in by_repeat if steps),
        useful_tokens_per_step=timed[0].useful_tokens_per_step if timed else 0,
        memory=max(memories, key=lambda memory: memory.total, default=None),
        profile=mean_profile(profiles) if profiles else None,
        predicted=next((r.prediction for r in records if r.prediction is not None), None),
        records=tuple(records),
    )


def _deciding_parity(verdicts: Sequence[Parity]) -> Parity | None:
    """A failed verdict before a passed one; among passed ones the one with gradients compared."""
    ordered = sorted(verdicts, key=lambda parity: (parity.ok, parity.gradient_error is None))
    return ordered[0] if ordered else None
