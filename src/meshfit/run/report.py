"""What one rank reports of itself: step times, exchanges of experts, peak memory, resident set."""

import torch

from meshfit.breakdown import MemoryBreakdown
from meshfit.measure.resident import device_memory, peak_resident_bytes, with_device_memory
from meshfit.record.environment import host_name
from meshfit.record.schema import RankReport
from meshfit.run.parallelize import RankModel
from meshfit.run.trainer import Trainer


def report_of_rank(
    rank: int, model: RankModel, trainer: Trainer, device: torch.device, *, track_memory: bool
) -> RankReport:
    """The report of this rank; its stage is that of its first layers.

    With ``track_memory`` one more step is taken, after the times were read, under the tensor
    tracker (all ranks must take it). The device's own peak is that of the steps before it,
    the first one left out.
    """
    step_s, input_wait_s = trainer.clock.step_s(), trainer.clock.input_wait_s()
    exchanges = trainer.mesh.layout.ep > 1
    times = model.experts.times if model.experts and exchanges else None
    dispatch_s, combine_s = (
        (times.dispatch.seconds(), times.combine.seconds()) if times else ((), ())
    )
    on_device = device_memory(device)
    tracked = _tracked_peak(trainer, model) if track_memory else None
    return RankReport(
        rank=rank,
        host=host_name(),
        step_s=step_s,
        input_wait_s=input_wait_s,
        memory=with_device_memory(tracked or MemoryBreakdown(), on_device)
        if tracked or on_device
        else None,
        resident_bytes=peak_resident_bytes(),
        stage=model.stage_ids[0],
        first_bad_loss=trainer.first_bad_loss(),
        dispatch_s=dispatch_s,
        combine_s=combine_s,
    )


def _tracked_peak(trainer: Trainer, model: RankModel) -> MemoryBreakdown:
    from meshfit.measure.tensors import TensorTracker  # noqa: PLC0415

    step = trainer.num_steps
    tracker = TensorTracker(model.stages, trainer.optimizer)
    with trainer.clock.step(), tracker:
        trainer.accumulate_gradients(step)
        trainer.update()
    return tracker.peak()
