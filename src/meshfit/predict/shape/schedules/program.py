"""The program of a schedule: the actions of every pipeline rank, in order."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from meshfit.errors import InputError
from meshfit.mesh.stage_placement import V_SCHEDULES
from meshfit.predict.shape.schedules.action import Action
from meshfit.predict.shape.schedules.dualpipe_v import dualpipe_v
from meshfit.predict.shape.schedules.gpipe import gpipe
from meshfit.predict.shape.schedules.interleaved_1f1b import interleaved_1f1b
from meshfit.predict.shape.schedules.interleaved_zero_bubble import interleaved_zero_bubble
from meshfit.predict.shape.schedules.looped_bfs import looped_bfs
from meshfit.predict.shape.schedules.one_f_one_b import one_f_one_b
from meshfit.predict.shape.schedules.rounds import Rounds, torch_round
from meshfit.predict.shape.schedules.zbv_zero_bubble import zbv_zero_bubble

RoundSize = Literal["torch", "megatron"]
"""Whose rounds interleaved schedules run in (``rounds.Rounds``)."""

STAGES_OF_A_V = 2

KEPT_PROGRAMS = 4
"""A program of 16 ranks, 3 virtual stages and 2048 micro-batches has 200,000 actions, 20 MiB."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """What every rank of a pipeline runs in one optimizer step.

    ``ranks`` has the actions of each, in its order.
    """

    schedule: str
    pp: int
    vpp: int
    micro_batches: int
    ranks: tuple[tuple[Action, ...], ...]


@lru_cache(maxsize=KEPT_PROGRAMS)
def program(
    schedule: str, pp: int, vpp: int, micro_batches: int, rounds: RoundSize = "torch"
) -> Program:
    """The program of a schedule (one of ``mesh.candidates.SCHEDULES``).

    Raises:
        InputError: the schedule has no order for so many stages a rank or micro-batches.
    """
    _require_order(schedule, pp, vpp, micro_batches)
    ranks = (
        rank_order(schedule, rank, pp, vpp, micro_batches, rounds=rounds) for rank in range(pp)
    )
    return Program(
        schedule=schedule,
        pp=pp,
        vpp=vpp,
        micro_batches=micro_batches,
        ranks=tuple(map(tuple, ranks)),
    )


def _require_order(schedule: str, pp: int, vpp: int, micro_batches: int) -> None:
    if schedule in V_SCHEDULES and vpp != STAGES_OF_A_V:
        raise InputError(f"the {schedule} schedule has 2 stages a rank, not vpp={vpp}")
    if schedule == "dualpipe_v" and micro_batches < 2 * pp:
        raise InputError(
            f"the dualpipe_v schedule needs at least 2*pp = {2 * pp} micro-batches; you have"
            f" {micro_batches}"
        )


def rank_order(
    schedule: str, rank: int, pp: int, vpp: int, micro_batches: int, *, rounds: RoundSize = "torch"
) -> list[Action]:
    """What one rank runs; no other rank's order is needed for it."""
    size = torch_round(pp, micro_batches) if rounds == "torch" else pp
    turns = Rounds(pp=pp, vpp=vpp, micro_batches=micro_batches, size=size)
    orders: dict[str, Callable[[], list[Action]]] = {
        "gpipe": lambda: gpipe(rank, micro_batches),
        "1f1b": lambda: one_f_one_b(rank, pp, micro_batches),
        "looped_bfs": lambda: looped_bfs(rank, pp, vpp, micro_batches),
        "interleaved_1f1b": lambda: interleaved_1f1b(rank, turns),
        "interleaved_zero_bubble": lambda: interleaved_zero_bubble(rank, turns),
        "zbv_zero_bubble": lambda: zbv_zero_bubble(rank, pp, micro_batches),
        "dualpipe_v": lambda: dualpipe_v(rank, pp, micro_batches),
    }
    return orders[schedule]()
