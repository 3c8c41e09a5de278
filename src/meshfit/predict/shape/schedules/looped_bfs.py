"""Looped breadth-first pipeline: all micro-batches on one stage, then on the next (2211.05953)."""

from meshfit.predict.shape.schedules.action import Action


def looped_bfs(rank: int, pp: int, vpp: int, micro_batches: int) -> list[Action]:
    """The order of one rank; backwards run in the reverse of the forwards' order, as torch does."""
    forwards = [
        Action("F", stage, number)
        for stage in range(rank, pp * vpp, pp)
        for number in range(micro_batches)
    ]
    return forwards + [Action("B", one.stage, one.micro_batch) for one in reversed(forwards)]
