"""When every action of a program runs, for many layouts at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.schedules.waves import Waves

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Played:
    """Seconds from the start of the step, [actions, N], in the order of the waves.

    ``arrived`` is when what an action takes is there; ``released`` when the rank can go on: later
    than ``finish`` where it waits for its send or has something to do after it.
    """

    arrived: FloatArray
    start: FloatArray
    finish: FloatArray
    released: FloatArray


def play(
    waves: Waves,
    duration: FloatArray,
    transfer: FloatArray,
    *,
    ready: FloatArray | None = None,
    after: FloatArray | None = None,
    receives_late: bool = False,
    waits_for_sends: bool = False,
) -> Played:
    """Run a program, every rank in its order, every action when what it takes has arrived.

    Args:
        duration: seconds of every action, [actions, N].
        transfer: seconds from the end of an action to its result on another rank, [N], or of what
            each action takes, [actions, N].
        ready: before which an action cannot start for other reasons, [actions, N].
        after: for which a rank is not free after an action whose result is on its way already,
            [actions, N].
        receives_late: whether a transfer starts only when the rank that takes it has nothing else
            to do before, instead of as soon as it can be sent.
        waits_for_sends: whether a rank goes on only when what it sent has arrived.
    """
    count, layouts = duration.shape
    arrived = np.empty((count, layouts))
    start = np.empty((count, layouts))
    finish = np.zeros((count + 1, layouts))
    delay = np.zeros((count + 1, layouts))
    np.copyto(delay[:count], transfer, where=waves.crosses[:, None])
    held = after
    if waits_for_sends:
        sending = delay[waves.taker]
        held = sending if after is None else after + sending
    released = finish if held is None else np.zeros((count + 1, layouts))
    for low, high in zip(waves.bounds[:-1], waves.bounds[1:], strict=True):
        wave = slice(low, high)
        sent = finish[waves.source[wave]]
        if receives_late:
            sent = np.maximum(sent, finish[waves.before[wave]])
        np.add(sent, delay[wave], out=arrived[wave])
        np.maximum(released[waves.before[wave]], arrived[wave], out=start[wave])
        if ready is not None:
            np.maximum(start[wave], ready[wave], out=start[wave])
        np.add(start[wave], duration[wave], out=finish[wave])
        if held is not None:
            np.add(finish[wave], held[wave], out=released[wave])
    return Played(arrived=arrived, start=start, finish=finish[:count], released=released[:count])
