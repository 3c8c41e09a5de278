"""Pipeline parallelism through ``torch.distributed.pipelining``.

Legend: B micro-batch, S sequence (this rank's shard of it under sequence parallelism), H hidden.
"""

import torch
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B, _PipelineSchedule

from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec
from meshfit.run.data import uses_fsdp
from meshfit.run.loss import token_loss_sum
from meshfit.run.mesh import RankMesh
from meshfit.run.parallelize import RankModel, compute_dtype
from meshfit.run.transformer import Stage
from meshfit.workload.training import TrainingSpec

_SCHEDULES = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved_1f1b": ScheduleInterleaved1F1B,
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
    stages = [
        _pipeline_stage(stage, stage_id, mesh, training, device)
        for stage, stage_id in zip(model.stages, model.stage_ids, strict=True)
    ]
    try:
        return _SCHEDULES[layout.schedule](
            stages if layout.vpp > 1 or layout.schedule == "interleaved_1f1b" else stages[0],
            layout.num_micro_batches(training.global_batch_size),
            loss_fn=token_loss_sum,
            scale_grads=False,  # the loss is already a share of the whole step's mean
        )
    except ValueError as error:
        raise InputError(f"layout {layout.label}: schedule {layout.schedule}: {error}") from error


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
        group=mesh.axis("pp").get_group(),
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
