"""Which stages lie on which pipeline rank."""

from meshfit.mesh.rulebook.pipeline import V_SCHEDULES


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
