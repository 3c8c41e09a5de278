"""Attention problems, each solved by several exchanges, that the session and its tests share.

No torch here.
"""

from dataclasses import dataclass
from typing import Any

from meshfit.mesh.spec import LayoutSpec, make_layout

NUM_RANKS = 4
SEQUENCE_LENGTH, HEAD_DIM, BATCH = 32, 16, 2
DOCUMENT_LENGTHS = ((5, 20, 7), (32,))
"""Of each sequence of the batch, where documents are packed."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Random queries, keys, values and output gradient of one shape."""

    query_heads: int = 8
    key_heads: int = 8
    window: int | None = None
    is_packed: bool = False
    dtype: str = "float64"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A problem and how ranks solve it together."""

    problem: Problem
    keys: dict[str, Any]

    @property
    def layout(self) -> LayoutSpec:
        return make_layout(self.keys)

    @property
    def name(self) -> str:
        p = self.problem
        parts = [self.layout.label, f"heads {p.query_heads}:{p.key_heads}", p.dtype]
        parts += [f"window {p.window}"] * (p.window is not None) + ["packed"] * p.is_packed
        return ", ".join(parts)


RING = {"cp": 4}
GATHER = {"cp": 4, "cp_method": "all_gather"}
HEADS = {"cp": 4, "cp_method": "all_to_all"}
BOTH = {"cp": 4, "cp_method": "hierarchical", "cp_inner": 2}
PAIRS = {"cp": 2, "dp_replicate": 2}
"""Two rings of two ranks."""

CASES = [
    Case(problem=problem, keys=keys)
    for problem, exchanges in (
        (Problem(), (RING, GATHER, HEADS, BOTH, PAIRS)),
        (Problem(key_heads=2), (RING, GATHER, HEADS, BOTH)),
        (Problem(query_heads=4, key_heads=1), (RING, HEADS, BOTH)),
        (Problem(dtype="bfloat16"), (RING, GATHER, HEADS, BOTH)),
        (Problem(key_heads=2, window=5), (GATHER, HEADS)),
        (Problem(key_heads=4, is_packed=True), (GATHER, HEADS)),
    )
    for keys in exchanges
]
