"""Interleaved zero bubble: ZB1P of 2401.10241 with several stages a rank."""

from meshfit.predict.shape.schedules.action import Action
from meshfit.predict.shape.schedules.rounds import Rounds


def interleaved_zero_bubble(rank: int, rounds: Rounds) -> list[Action]:
    """The order of one rank.

    Interleaved 1F1B with a backward cut in two and a warm-up of one forward a hop; gradients of
    weights follow those of inputs ``rank`` backwards later (torch.distributed.pipelining,
    ``schedules.py::ScheduleInterleavedZeroBubble``).
    """
    forwards = [Action("F", *one) for one in rounds.forwards(rank)]
    inputs = [Action("I", *one) for one in rounds.backwards(rank)]
    weights = [Action("W", *one) for one in rounds.backwards(rank)]
    warm_up = rounds.warm_up(rank, hops=1)
    actions = forwards[:warm_up]
    for index, backward in enumerate(inputs):
        actions += forwards[warm_up + index : warm_up + index + 1]
        actions.append(backward)
        if index >= rank:
            actions.append(weights[index - rank])
    return actions + weights[max(0, len(inputs) - rank) :]
