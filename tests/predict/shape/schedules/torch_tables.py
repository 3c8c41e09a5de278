"""The schedule tables of torch.distributed.pipelining, made without processes or models."""

from types import SimpleNamespace
from typing import Any

CLASSES = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved_1f1b": "ScheduleInterleaved1F1B",
    "looped_bfs": "ScheduleLoopedBFS",
    "interleaved_zero_bubble": "ScheduleInterleavedZeroBubble",
    "zbv_zero_bubble": "ScheduleZBVZeroBubble",
    "dualpipe_v": "ScheduleDualPipeV",
}


def torch_order(schedule: str, pp: int, vpp: int, micro_batches: int) -> dict[int, list[str]]:
    """Rank -> its actions as torch writes them, without waits; a forward and a backward that
    torch groups stand one after the other, as its runtime runs them."""
    if schedule in ("gpipe", "1f1b"):
        return {rank: _played(schedule, rank, pp, micro_batches) for rank in range(pp)}
    stages = [_stage(index, 0, pp, pp * vpp) for index in range(0, pp * vpp, pp)]
    order = _schedule(schedule, stages, micro_batches).pipeline_order
    return {
        rank: [str(one) for action in actions for one in _flat(action)]
        for rank, actions in order.items()
    }


def _played(schedule: str, rank: int, pp: int, micro_batches: int) -> list[str]:
    """What the loop of a single-stage schedule asks of its stage (its own table numbers the
    micro-batches of 1F1B's last rank from 1)."""
    stage = _stage(rank, rank, pp, pp)
    stage.done = []
    for name, kind in (("forward_one_chunk", "F"), ("backward_one_chunk", "B")):
        setattr(
            stage,
            name,
            lambda number, *_, kind=kind, **__: stage.done.append(f"{rank}{kind}{number}"),
        )
    for name in ("get_fwd_recv_ops", "get_fwd_send_ops", "get_bwd_recv_ops", "get_bwd_send_ops"):
        setattr(stage, name, lambda _: [])
    stage.perform_reduce_grad = lambda _: None
    made = _schedule(schedule, stage, micro_batches)
    made._initialize_stage = lambda *_: None
    made._step_microbatches([()] * micro_batches, [{}] * micro_batches)
    return stage.done


def _schedule(schedule: str, stages: Any, micro_batches: int) -> Any:
    from torch.distributed.pipelining import schedules

    return getattr(schedules, CLASSES[schedule])(stages, micro_batches)


def _flat(action: Any) -> list[Any]:
    if action is None:
        return []
    if action.sub_actions:
        return list(action.sub_actions)
    return [action] if action.computation_type.value in "FBIW" else []


def _stage(index: int, rank: int, pp: int, num_stages: int) -> Any:
    """What torch's constructors and loops look at in a stage."""
    return SimpleNamespace(
        submod=None,
        stage_index=index,
        num_stages=num_stages,
        group_size=pp,
        group_rank=rank,
        is_last=False,
        has_backward=True,
    )
