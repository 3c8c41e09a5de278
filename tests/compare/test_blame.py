import math
from collections.abc import Sequence

from meshfit.compare.blame import nonfinite_loss
from meshfit.record.schema import RankReport, RunResult


def result(losses: Sequence[float], first_bad: Sequence[int | None]) -> RunResult:
    return RunResult(
        losses=tuple(losses),
        gradient_norms=(),
        useful_tokens_per_step=1,
        ranks=tuple(
            RankReport(
                rank=rank, host="", step_s=(), input_wait_s=(), memory=None, first_bad_loss=step
            )
            for rank, step in enumerate(first_bad)
        ),
    )


def test_finite_losses_are_nobodys_fault() -> None:
    assert nonfinite_loss(result([1.0, 0.5], [None, None])) is None


def test_the_rank_that_had_no_number_first_is_named_and_not_those_it_spread_to() -> None:
    failure = nonfinite_loss(result([1.0, math.nan, math.nan], [2, 1, 2]))
    assert failure is not None
    assert (failure.rank, failure.phase, failure.step) == (1, "train", 1)
    assert failure.message == "the loss of step 1 is nan, first on rank 1"


def test_a_loss_that_only_the_sum_lost_names_no_rank() -> None:
    failure = nonfinite_loss(result([math.inf], [None, None]))
    assert failure is not None
    assert failure.rank is None
    assert failure.message == "the loss of step 0 is inf"
