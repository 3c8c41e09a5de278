"""1F1B: after a warm-up, one forward and one backward in turn (2104.04473, section 2.2)."""

from meshfit.predict.shape.schedules.action import Action


def one_f_one_b(rank: int, pp: int, micro_batches: int) -> list[Action]:
    """The order of one rank; ``pp - 1 - rank`` forwards come before the first pair."""
    warm_up = min(pp - 1 - rank, micro_batches)
    actions = [Action("F", rank, number) for number in range(warm_up)]
    for number in range(warm_up, micro_batches):
        actions += [Action("F", rank, number), Action("B", rank, number - warm_up)]
    rest = range(micro_batches - warm_up, micro_batches)
    return actions + [Action("B", rank, number) for number in rest]
