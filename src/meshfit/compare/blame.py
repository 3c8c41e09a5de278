"""Which rank a run that ended by itself, but not well, is to be blamed on."""

import math

from meshfit.record.schema import Failure, RunResult


def nonfinite_loss(result: RunResult) -> Failure | None:
    """The first loss that is no number, and the rank where it was none first; None if all are finite.

    After an update every rank has it; so the earliest step counts, and in it the lowest rank.
    """
    bad = [step for step, loss in enumerate(result.losses) if not math.isfinite(loss)]
    if not bad:
        return None
    seen = [
        (report.first_bad_loss, report.rank)
        for report in result.ranks
        if report.first_bad_loss is not None
    ]
    step, rank = min(seen, default=(bad[0], None))
    value, step = result.losses[bad[0]], result.first_step + step
    where = "" if rank is None else f", first on rank {rank}"
    return Failure(
        message=f"the loss of step {step} is {value}{where}",
        rank=rank,
        phase="train",
        step=step,
    )
