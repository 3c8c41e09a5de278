"""Interleaved 1F1B: several stages a rank, depth first (2104.04473, section 2.2)."""

from meshfit.predict.shape.schedules.action import Action
from meshfit.predict.shape.schedules.rounds import Rounds


def interleaved_1f1b(rank: int, rounds: Rounds) -> list[Action]:
    """The order of one rank.

    Warm-up and order of torch.distributed.pipelining (``schedules.py::_get_warmup_ops``) and of
    Megatron-Core (``schedules.py::get_pp_rank_microbatches``), which differ in the size of a round
    alone: Megatron's are of ``pp`` micro-batches and the last may be short, torch's are all equal.
    """
    forwards = [Action("F", *one) for one in rounds.forwards(rank)]
    backwards = [Action("B", *one) for one in rounds.backwards(rank)]
    warm_up = rounds.warm_up(rank, hops=2)
    actions = forwards[:warm_up]
    for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
        actions += [forward, backward]
    return actions + backwards[len(forwards) - warm_up :]
