"""Kinds of pipeline schedules, and which stages lie on which rank."""

LOOPED_SCHEDULES: tuple[str, ...] = ("interleaved_1f1b", "looped_bfs", "interleaved_zero_bubble")
"""Several stages on a rank, dealt out in rounds."""
V_SCHEDULES: tuple[str, ...] = ("zbv_zero_bubble", "dualpipe_v")
"""Two stages on a rank, the second half of the model in reverse order."""
SPLIT_SCHEDULES: tuple[str, ...] = ("interleaved_zero_bubble", "zbv_zero_bubble", "dualpipe_v")
"""Those that run gradients of weights apart from those of inputs, to fill the bubble."""


def stages_of_rank(schedule: str, rank: int, pp: int, vpp: int) -> tuple[int, ...]:
    """Stages of one rank in model order.

    In a loop, virtual stage v of rank r is stage ``r + pp * v`` (Megatron-Core, and torch's
    interleaved schedules). In a V, rank r holds stages ``r`` and ``2 * pp - 1 - r``, so that the
    first and the last stage share a rank (2401.10241, section 6).
    """
    if schedule in V_SCHEDULES:
        return (rank, 2 * pp - 1 - rank)
    return tuple(range(rank, pp * vpp, pp))


def rank_of_stage(schedule: str, stage: int, pp: int) -> int:
    """The rank that a stage lies on."""
    if schedule in V_SCHEDULES:
        return min(stage, 2 * pp - 1 - stage)
    return stage % pp
