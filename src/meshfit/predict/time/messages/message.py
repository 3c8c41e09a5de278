"""One kind of message: its size as a product, how often a step has it, along which ranks."""

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.costs.collectives import Collective

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


TERM_AXES = {"etp": "tp", "edp": "dp_shard"}
"""Axes of experts, and those whose terms hold their time (``terms.EXPOSED_TERMS``)."""


@dataclass(frozen=True)
class Size:
    """Bytes of a message as a product of what it is made of, each factor with its word."""

    factors: tuple[tuple[FloatArray | IntArray | float, str], ...]

    @property
    def bytes(self) -> FloatArray:
        """The product, for every layout."""
        return np.asarray(prod(value for value, _ in self.factors), dtype=np.float64)

    def times(self, count: FloatArray | IntArray | float) -> "Size":
        """So many of them together."""
        return Size(((count, ""), *self.factors))

    def text(self) -> str:
        """The product of the first layout, in words."""
        return " x ".join(f"{_number(value)} {word}".strip() for value, word in self.factors)


def _number(value: FloatArray | IntArray | float) -> str:
    first = float(np.ravel(value)[0])
    return f"{first:,.0f}" if first >= 100 or first.is_integer() else f"{first:.4g}"


@dataclass(frozen=True, kw_only=True)
class Message:
    """One kind of message of one pipeline rank, for every layout of a group.

    Attributes:
        collective, axis: what it is, and along which ranks: a mesh axis, or ``ep``, ``etp``, ``edp``.
        what: what is sent, in words.
        size: the whole buffer of one.
        times: of it in one optimizer step.
        ranks: that take part.
    """

    collective: Collective
    axis: str
    what: str
    size: Size
    times: FloatArray
    ranks: IntArray

    @property
    def size_bytes(self) -> FloatArray:
        return self.size.bytes

    @property
    def term(self) -> str:
        """The term of a step that holds its time."""
        return f"{self.collective}.{TERM_AXES.get(self.axis, self.axis)}"

    @property
    def passes_whole(self) -> bool:
        """Whether each rank sends all of the buffer. Keys that go round a ring of context-parallel
        ranks are the buffer of all of them, of which none sends its own neighbour's."""
        return self.collective in ("broadcast", "send_recv") and self.axis != "cp"

    @property
    def sent_bytes(self) -> FloatArray:
        """What each rank sends in a step; 0 where it is alone.

        A ring's share of the buffer: all_reduce ``2 (n - 1) / n``, all_gather, reduce_scatter,
        all_to_all and a ring of sends ``(n - 1) / n``, a broadcast or a send all of it (nccl-tests,
        doc/PERFORMANCE.md).
        """
        share = (self.ranks - 1) / self.ranks
        if self.collective == "all_reduce":
            share = 2 * share
        elif self.passes_whole:
            share = np.where(self.ranks > 1, 1.0, 0.0)
        return np.asarray(share * self.size_bytes * self.times)


@dataclass(frozen=True, kw_only=True)
class PassCounts:
    """How often a layer has an exchange in one micro-batch: in its forward, in its backward, and in
    what recomputation runs again before that."""

    forward: FloatArray | float
    backward: FloatArray | float
    again: FloatArray | float

    @property
    def total(self) -> FloatArray:
        return np.asarray(self.forward + self.backward + self.again)

    def times(self, count: FloatArray | float) -> "PassCounts":
        """So many in place of each."""
        return PassCounts(
            forward=count * self.forward, backward=count * self.backward, again=count * self.again
        )


def message(
    collective: str,
    axis: str,
    what: str,
    size: Size,
    *,
    times: FloatArray | IntArray | float,
    ranks: IntArray,
) -> Message:
    return Message(
        collective=collective,  # type: ignore[arg-type]
        axis=axis,
        what=what,
        size=size,
        times=np.asarray(times, dtype=np.float64),
        ranks=ranks,
    )
