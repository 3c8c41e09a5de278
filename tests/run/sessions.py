"""What is run in one world, one layout after another. No torch here."""

from dataclasses import dataclass

from tests.run.combinations import (
    CUTTING_COMBINATIONS,
    DENSE_COMBINATIONS,
    EXPERT_COMBINATIONS,
    NUM_COMBINED_RANKS,
    NUM_CUTTING_RANKS,
)
from tests.run.layouts import CASES, HEAVY_CASES, NUM_RANKS, STRATEGY_CASES, Case


@dataclass(frozen=True, kw_only=True)
class ParitySession:
    """Cases of one number of ranks."""

    cases: list[Case]
    num_ranks: int = NUM_RANKS


SESSIONS: dict[str, ParitySession] = {
    "everyday": ParitySession(cases=CASES),
    "heavy": ParitySession(cases=HEAVY_CASES),
    "strategies": ParitySession(cases=STRATEGY_CASES),
    "combinations": ParitySession(cases=DENSE_COMBINATIONS, num_ranks=NUM_COMBINED_RANKS),
    "combinations of experts": ParitySession(
        cases=EXPERT_COMBINATIONS, num_ranks=NUM_COMBINED_RANKS
    ),
    "combinations of cut experts": ParitySession(
        cases=CUTTING_COMBINATIONS, num_ranks=NUM_CUTTING_RANKS
    ),
}
"""By name."""
