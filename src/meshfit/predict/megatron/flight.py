"""Micro-batches in flight under Megatron-Core's schedules (``pipeline_parallel/schedules.py``)."""

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.schedule import Pipeline, by_schedule

IntArray = NDArray[np.int64]


def in_flight(
    pipeline: Pipeline,
    rank: int,
    micro_batches: IntArray,
    micro_batch_group: int | None = None,
    schedules: IntArray | None = None,
) -> tuple[IntArray, ...]:
    """Micro-batches whose activations ``rank`` holds at its first backward, per virtual stage.

    1F1B: ``min(m, pp - rank)``. Interleaved: ``get_pp_rank_microbatches`` runs
    ``(vpp - 1) * group + 2 * (pp - 1 - rank)`` forwards before the first backward, and one more;
    they go round the stages ``group`` micro-batches at a time.

    Args:
        schedules: of every layout, an index into ``SCHEDULES``; None: the pipeline's.
    """
    held = np.zeros((pipeline.vpp, len(micro_batches)), dtype=np.int64)
    for one, rows in by_schedule(pipeline, schedules, len(micro_batches)):
        held[:, rows] = _in_flight(one, rank, micro_batches[rows], micro_batch_group)
    return tuple(held)


def _in_flight(
    pipeline: Pipeline, rank: int, micro_batches: IntArray, micro_batch_group: int | None
) -> tuple[IntArray, ...]:
    if pipeline.schedule == "gpipe":
        return (micro_batches,) * pipeline.vpp
    if pipeline.vpp == 1:
        return (np.minimum(micro_batches, pipeline.pp - rank),)
    size = np.minimum(micro_batch_group or pipeline.pp, micro_batches)
    warm_up = (pipeline.vpp - 1) * size + 2 * (pipeline.pp - 1 - rank)
    forwards = np.minimum(warm_up + 1, micro_batches * pipeline.vpp)
    rounds, rest = np.divmod(forwards, size * pipeline.vpp)
    return tuple(
        rounds * size + np.clip(rest - stage * size, 0, size) for stage in range(pipeline.vpp)
    )
