"""What one rank reports of itself: step times, peak memory, resident set."""

import platform
import resource
from collections.abc import Sequence
from dataclasses import replace

import torch

from meshfit.breakdown import MemoryBreakdown
from meshfit.record.schema import RankReport, RunRequest
from meshfit.run.parallelize import RankModel
from meshfit.run.trainer import Trainer


def report_of_rank(
    rank: int,
    model: RankModel,
    *,
    step_s: Sequence[float],
    input_wait_s: Sequence[float],
    memory: MemoryBreakdown,
) -> RankReport:
    """The report of this rank; its stage is the pipeline rank, that is its first stage's index."""
    return RankReport(
        rank=rank,
        host=platform.node(),
        step_s=tuple(step_s),
        input_wait_s=tuple(input_wait_s),
        memory=memory,
        resident_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        stage=model.stage_ids[0],
    )


def peak_memory(
    trainer: Trainer, model: RankModel, step: int, device: torch.device, request: RunRequest
) -> MemoryBreakdown:
    """Peak memory by category, from one more step (number ``step``) under the tensor tracker.

    On CUDA (not run on the machine this was written on) the allocator's own peak over the steps
    before is the measure; what the tracker cannot attribute of it stays ``unattributed``.
    """
    tracked = _tracked_peak(trainer, model, step) if request.track_memory else MemoryBreakdown()
    if device.type != "cuda":
        return tracked
    allocated = torch.cuda.max_memory_allocated(device)
    unattributed = tracked.unattributed + max(0, allocated - tracked.allocated)
    reserved = torch.cuda.max_memory_reserved(device)
    return replace(tracked, unattributed=unattributed, reserved=reserved)


def _tracked_peak(trainer: Trainer, model: RankModel, step: int) -> MemoryBreakdown:
    from meshfit.measure.tensors import TensorTracker  # noqa: PLC0415

    with TensorTracker(model.stages, trainer.optimizer) as tracker:
        trainer.accumulate_gradients(step)
        trainer.update()
    return tracker.peak()
