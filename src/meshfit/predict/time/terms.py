"""The terms that a step's time is made of, and sums of them."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

EXPOSED_TERMS: tuple[str, ...] = (
    "all_reduce.tp",
    "all_gather.tp",
    "reduce_scatter.tp",
    "send_recv.cp",
    "all_gather.cp",
    "all_to_all.cp",
    "all_gather.dp_shard",
    "reduce_scatter.dp_shard",
    "all_reduce.dp_shard",
    "broadcast.dp_shard",
    "all_reduce.dp_replicate",
    "all_to_all.ep",
    "send_recv.pp",
    "all_reduce.pp",
)
"""Collectives that no computation hides, ``COLLECTIVE.AXIS``. What ranks of an expert exchange
counts under the axes that these ranks are taken from: etp under tp, edp under dp_shard."""
OWN_TERMS: tuple[str, ...] = ("compute", "recompute", "bubble", "optimizer", "other")
TERMS: tuple[str, ...] = (*OWN_TERMS, *EXPOSED_TERMS)

COMPUTED: tuple[str, ...] = ("compute", "recompute", "optimizer")
"""Terms in which a rank needs its accelerator, or its core."""

Terms = dict[str, FloatArray]
"""Seconds by term, for N layouts each."""


def add(terms: Terms, more: Mapping[str, FloatArray], factor: float | FloatArray = 1.0) -> None:
    """Add ``factor`` times ``more`` to ``terms``."""
    for name, seconds in more.items():
        terms[name] = terms.get(name, 0.0) + factor * seconds


def computing_in(terms: Mapping[str, FloatArray], factor: float | FloatArray) -> Terms:
    """The same where computation takes ``factor`` times as long."""
    return {name: s * factor if name in COMPUTED else s for name, s in terms.items()}


def computed_s(terms: Mapping[str, FloatArray], count: int) -> FloatArray:
    """Seconds of computation, [count]."""
    return total({name: s for name, s in terms.items() if name in COMPUTED}, count)


def merged(*parts: Mapping[str, FloatArray]) -> Terms:
    """Sum of several, term by term."""
    terms: Terms = {}
    for part in parts:
        add(terms, part)
    return terms


def total(terms: Mapping[str, FloatArray], count: int) -> FloatArray:
    """Seconds of all terms together, [count]."""
    return sum(terms.values(), start=np.zeros(count))
