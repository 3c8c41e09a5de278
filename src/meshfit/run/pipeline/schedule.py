"""Pipeline parallelism through ``torch.distributed.pipelining``.

Legend: B micro-batch, S sequence (this rank's shard of it under sequence parallelism), H hidden.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    PipelineScheduleMulti,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    _PipelineSchedule,
)

from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec
from meshfit.mesh.stage_placement import SPLIT_SCHEDULES
from meshfit.run.data import uses_fsdp
from meshfit.run.mesh import RankMesh
from meshfit.run.model.transformer import Stage
from meshfit.run.parallelize import RankModel, compute_dtype
from meshfit.workload.training import TrainingSpec

_SCHEDULES: dict[str, type[_PipelineSchedule]] = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved_1f1b": ScheduleInterleaved1F1B,
    "looped_bfs": ScheduleLoopedBFS,
    "interleaved_zero_bubble": ScheduleInterleavedZeroBubble,
    "zbv_zero_bubble": ScheduleZBVZeroBubble,
    "dualpipe_v": ScheduleDualPipeV,
}


def build_schedule(
    model: RankModel, mesh: RankMesh, training: TrainingSpec, device: torch.device
) -> _PipelineSchedule:
    """The schedule that runs this rank's stages; its loss is the sum over tokens, times ``scale``.

    Raises:
        InputError: an unknown schedule, or one that does not take this number of micro-batches.
    """
    layout = mesh.layout
    if layout.schedule not in _SCHEDULES:
        raise InputError(
            f"schedule {layout.schedule!r} cannot be run; use one of {', '.join(_SCHEDULES)}"
        )
    if layout.schedule in SPLIT_SCHEDULES:
        for stage in model.stages:
            stage.unwrap_output = partial(_as_no_view, stage.unwrap_output)
    stages = [
        _pipeline_stage(stage, stage_id, mesh, training, device)
        for stage, stage_id in zip(model.stages, model.stage_ids, strict=True)
    ]
    schedule_class = _SCHEDULES[layout.schedule]
    try:
        return schedule_class(
            stages if issubclass(schedule_class, PipelineScheduleMulti) else stages[0],
            layout.num_micro_batches(training.global_batch_size),
            loss_fn=model.token_loss_sum,
            scale_grads=False,  # the loss is already a share of the whole step's mean
        )
    except ValueError as error:
        raise InputError(f"layout {layout.label}: schedule {layout.schedule}: {error}") from error


def _as_no_view(unwrap: Callable[[Tensor], Tensor], hidden_BSH: Tensor) -> Tensor:
    """A stage's output of its own: the first half of a split backward detaches it in place."""
    hidden_BSH = unwrap(hidden_BSH)
    return hidden_BSH.clone() if hidden_BSH._is_view() else hidden_BSH


def _pipeline_stage(
    stage: Stage, stage_id: int, mesh: RankMesh, training: TrainingSpec, device: torch.device
) -> PipelineStage:
    """A stage with the shapes it takes and gives, so that no step is spent on finding them out."""
    length = training.sequence_length // mesh.layout.cp
    tokens_BS = torch.empty(mesh.layout.micro_batch_size, length, dtype=torch.int64, device="meta")
    hidden_BSH = _example_hidden(stage, mesh.layout, training)
    logits_BSV = torch.empty(
        *tokens_BS.shape, stage.model.config.vocab_size, dtype=torch.float32, device="meta"
    )
    return PipelineStage(
        stage,
        stage_id,
        mesh.layout.num_stages,
        device,
        input_args=tokens_BS if stage.is_first else hidden_BSH,
        output_args=logits_BSV if stage.is_last else hidden_BSH,
        group=mesh.group("pp"),
    )


def _example_hidden(stage: Stage, layout: LayoutSpec, training: TrainingSpec) -> Tensor:
    """What neighbouring stages exchange: autocast keeps the residual stream in fp32, FSDP2 does not."""
    dtype = compute_dtype(training.precision) if uses_fsdp(layout) else None
    shard = layout.tp if layout.sp else 1
    return torch.empty(
        layout.micro_batch_size,
        training.sequence_length // layout.cp // shard,
        stage.model.config.hidden_size,
        dtype=dtype or torch.float32,
        device="meta",
        requires_grad=True,
    )
