"""Steps run once more, after the timed ones, under the recorder; and what came of them."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import psutil
import torch

from meshfit.measure.intervals import Interval
from meshfit.measure.timeline.chrome import RankTimeline
from meshfit.measure.timeline.exposure import profiles
from meshfit.measure.timeline.kernels import on_device
from meshfit.measure.timeline.recorder import StepRecorder
from meshfit.measure.timeline.spans import StepTrace
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.environment import host_name
from meshfit.record.profiles import mean_profile
from meshfit.record.schema import StepProfile
from meshfit.run.axes import axes_of_groups
from meshfit.run.parallelize import RankModel
from meshfit.run.ranks import Rank
from meshfit.run.trainer import Trainer

TIMELINE_NAME = "timeline.json"


def record_steps(
    trainer: Trainer,
    model: RankModel,
    rank: Rank,
    *,
    count: int,
    before_step: Callable[[int], object],
) -> list[StepTrace]:
    """``count`` more steps of this rank, recorded; all ranks must take them.

    ``before_step`` is called with each step's number inside the step.
    """
    return [_record(trainer, model, rank, before_step) for _ in range(count)]


def _record(
    trainer: Trainer, model: RankModel, rank: Rank, before_step: Callable[[int], object]
) -> StepTrace:
    step = trainer.num_steps
    recorder = StepRecorder(
        model.stages, trainer.optimizer, axes=axes_of_groups(trainer.mesh, model.experts)
    )
    with _kernels(rank.device) as kernels, trainer.clock.step(), recorder:
        before_step(step)
        trainer.accumulate_gradients(step)
        trainer.update()
        if kernels is not None:
            torch.cuda.synchronize(rank.device)
    trace = recorder.trace(rank.rank, trainer.clock.input_waits)
    return trace if kernels is None else on_device(trace, _device_events(kernels))


def _kernels(device: torch.device) -> Any:
    """The profiler of a device's kernels; nothing on the CPU, where calls and work are one."""
    if device.type != "cuda":
        return nullcontext()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    return torch.profiler.profile(activities=activities)


def _device_events(profiler: Any) -> list[Any]:
    events = profiler.profiler.kineto_results.events()
    return [event for event in events if event.device_type() == torch.autograd.DeviceType.CUDA]


def profiles_of(timelines: Sequence[RankTimeline], layout: LayoutSpec) -> list[StepProfile]:
    """Mean profile of every rank over its recorded steps."""
    by_step = [
        profiles(traces, is_pipeline=layout.pp > 1)
        for traces in zip(*(one.traces for one in timelines), strict=True)
    ]
    return [mean_profile(steps) for steps in zip(*by_step, strict=True)]


def timeline_of(
    rank: int,
    trainer: Trainer,
    traces: Sequence[StepTrace],
    ended_s: Mapping[str, float],
    timed_steps: int,
) -> RankTimeline:
    """This rank's run so far.

    Args:
        ended_s: as in ``RunResult.phases_s``.
        timed_steps: of the steps that the trainer's clock knows, how many first ones were timed.
    """
    started_s = begin_s = psutil.Process().create_time()
    phases: dict[str, Interval] = {}
    for name, seconds in ended_s.items():
        phases[name] = (begin_s, started_s + seconds)
        begin_s = started_s + seconds
    epoch_s = time.time() - time.perf_counter()
    return RankTimeline(
        rank=rank,
        host=host_name(),
        phases=phases,
        steps=[
            (epoch_s + begin, epoch_s + end)
            for begin, end in trainer.clock.host_steps[:timed_steps]
        ],
        traces=traces,
    )
