"""Layers over pipeline stages so that the slowest stage is as fast as can be, from what parts cost."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PartCosts:
    """What the parts of a model cost one rank, in order: the embedding, every layer, the head.

    Attributes:
        seconds: of forward and backward of one micro-batch.
        kept_bytes: from the forward to the backward of one micro-batch.
        state_bytes: between steps: parameters, gradients, the optimizer's state.
    """

    seconds: FloatArray
    kept_bytes: FloatArray
    state_bytes: FloatArray

    @property
    def num_layers(self) -> int:
        return len(self.seconds) - 2

    def held_bytes(self, split: Sequence[int], in_flight: Sequence[int]) -> FloatArray:
        """Of every stage, with so many micro-batches in flight on each."""
        return sums_of_stages(self.state_bytes, split) + np.asarray(in_flight) * sums_of_stages(
            self.kept_bytes, split
        )


def sums_of_stages(of_parts: FloatArray, split: Sequence[int]) -> FloatArray:
    """Sums over the layers of every stage; the first has the embedding as well, the last the head."""
    ends = np.cumsum(split) + 1
    starts = ends - np.asarray(split)
    starts[0], ends[-1] = 0, len(of_parts)
    before = np.concatenate([[0.0], np.cumsum(of_parts)])
    return np.asarray(before[ends] - before[starts])


def balanced_by_cost(
    costs: PartCosts, in_flight: Sequence[int], *, most_bytes: float = np.inf
) -> tuple[int, ...] | None:
    """Layers of every stage such that the slowest stage takes least; of equal ones, such that the
    squares of the stages' times add up to least.

    By dynamic programming over how many layers the first stages hold: O(stages x layers^2).

    Args:
        in_flight: micro-batches whose activations each stage holds; its length is that of the pipeline.
        most_bytes: what a stage may hold.

    Returns:
        None where no split leaves every stage a layer and keeps it within ``most_bytes``.
    """
    num_stages, num_layers = len(in_flight), costs.num_layers
    slowest = np.full(num_layers + 1, np.inf)
    squares = np.full(num_layers + 1, np.inf)
    slowest[0] = squares[0] = 0.0
    before = np.zeros((num_stages, num_layers + 1), dtype=np.int64)
    for stage, flying in enumerate(in_flight):
        is_ends = (stage == 0, stage == num_stages - 1)
        seconds = _between(costs.seconds, is_ends)
        held = _between(costs.state_bytes, is_ends) + flying * _between(costs.kept_bytes, is_ends)
        worst = np.where(held > most_bytes, np.inf, np.maximum(slowest[:, None], seconds))
        total = squares[:, None] + seconds**2
        best = np.lexsort((total, worst), axis=0)[0]
        columns = np.arange(num_layers + 1)
        before[stage], slowest, squares = best, worst[best, columns], total[best, columns]
    return _read_back(before) if np.isfinite(slowest[-1]) else None


def _between(of_parts: FloatArray, is_ends: tuple[bool, bool]) -> FloatArray:
    """[from layer, to layer]: of a stage with the layers between, with the ends that it holds; infinite
    where it would hold none."""
    sums = np.concatenate([[0.0], np.cumsum(of_parts[1:-1])])
    found = sums[None, :] - sums[:, None] + is_ends[0] * of_parts[0] + is_ends[1] * of_parts[-1]
    found[np.tril_indices(len(sums))] = np.inf
    return np.asarray(found)


def _read_back(before: NDArray[np.int64]) -> tuple[int, ...]:
    """The split that ends with all layers; ``before[stage, layers]`` are those of the stages before."""
    split: list[int] = []
    until = before.shape[1] - 1
    for row in reversed(before):
        split.append(until - int(row[until]))
        until = int(row[until])
    return tuple(reversed(split))
