"""GPipe: all forwards, then all backwards (1811.06965, section 2.3)."""

from meshfit.predict.shape.schedules.action import Action


def gpipe(rank: int, micro_batches: int) -> list[Action]:
    """The order of one rank."""
    forwards = [Action("F", rank, number) for number in range(micro_batches)]
    return forwards + [Action("B", rank, number) for number in range(micro_batches)]
