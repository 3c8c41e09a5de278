"""The order of forwards and backwards on one rank, where it has one stage."""

from meshfit.dryrun.repeat import Slot
from meshfit.mesh.spec import LayoutSpec


def slots_of(layout: LayoutSpec, num_micro_batches: int, pp_rank: int) -> tuple[Slot, ...]:
    """Passes of one step in order; ``layout.vpp`` is 1.

    Without a pipeline each backward follows its forward. GPipe runs all forwards, then all
    backwards; 1F1B as many forwards as there are stages from this one on, then in turn.
    """
    if layout.pp > 1 and layout.schedule == "gpipe":
        ahead = num_micro_batches
    else:
        ahead = forwards_ahead(layout, num_micro_batches, pp_rank)
    slots = [_slot("F", index) for index in range(ahead)]
    for index in range(num_micro_batches - ahead):
        slots += [_slot("B", index), _slot("F", ahead + index)]
    slots += [_slot("B", index) for index in range(num_micro_batches - ahead, num_micro_batches)]
    return tuple(slots)


def forwards_ahead(layout: LayoutSpec, num_micro_batches: int, pp_rank: int) -> int:
    """Micro-batches in flight under 1F1B: forwards before the first backward."""
    return min(num_micro_batches, layout.pp - pp_rank)


def _slot(direction: str, micro_batch: int) -> Slot:
    return Slot(direction=direction, stage=0, micro_batch=micro_batch)
