"""What the planner would choose where a source does not say."""

from dataclasses import replace

import numpy as np

from meshfit.mesh.candidates import Candidates
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.estimate import estimate
from meshfit.validate.row_job import RowJob

CAPACITY_SHARE = 0.9
"""Of the accelerator's memory that a choice may fill."""


def with_planned_micro_batch(job: RowJob) -> RowJob:
    """The job with the micro-batch that is predicted to be fastest of those that fit.

    Powers of two that divide a rank's share of the batch and leave a micro-batch for every pipeline
    rank. The measurement is not looked at.
    """
    chosen = _fastest_that_fits(job, _micro_batches(job))
    assumed = tuple(text for text in job.assumed if not text.startswith("mbs"))
    said = f"mbs: micro-batch {chosen.micro_batch_size}, the planner's choice"
    return replace(job, layout=chosen, assumed=(said, *assumed))


def with_planned_shards(job: RowJob) -> RowJob:
    """The job with the split of data parallelism into replicas and shards that is predicted to be
    fastest of those that fit; the measurement is not looked at."""
    ranks = job.layout.dp_replicate * job.layout.dp_shard
    layouts = [
        replace(job.layout, dp_replicate=ranks // shard, dp_shard=shard)
        for shard in range(2, ranks + 1)
        if ranks % shard == 0
    ]
    chosen = _fastest_that_fits(job, layouts or [job.layout])
    said = f"dp_shard: {chosen.dp_shard}, the planner's choice"
    return replace(job, layout=chosen, assumed=(said, *job.assumed))


def _fastest_that_fits(job: RowJob, layouts: list[LayoutSpec]) -> LayoutSpec:
    """The one that needs least memory where none fits."""
    found = estimate(
        job.model, job.training, job.topology, Candidates.from_layouts(layouts), job.profile
    )
    capacity = CAPACITY_SHARE * job.topology.accelerator.memory_bytes
    fits = found.memory_middle_bytes <= capacity
    if not fits.any():
        return layouts[int(np.argmin(found.memory_middle_bytes))]
    return layouts[int(np.argmin(np.where(fits, found.step_middle_s, np.inf)))]


def _micro_batches(job: RowJob) -> list[LayoutSpec]:
    layout = job.layout
    share = job.training.global_batch_size // layout.data_parallel_size
    sizes = [
        2**power
        for power in range(share.bit_length())
        if share % 2**power == 0 and share // 2**power >= layout.pp
    ]
    return [replace(layout, micro_batch_size=size) for size in sizes or [1]]
