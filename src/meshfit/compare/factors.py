"""Naming a ratio that should be 1 and is not, by the degrees of the layout.

Most defects of a parallel step scale something by a whole degree: a sum where a mean was due, a
mean over the wrong group, a norm of one shard.
"""

import math
from collections.abc import Iterator
from itertools import combinations

from meshfit.mesh.spec import LayoutSpec


def name_factor(
    ratio: float,
    layout: LayoutSpec,
    num_micro_batches: int,
    *,
    tolerance: float,
    roots_first: bool = False,
) -> str | None:
    """Words for ``ratio`` when it equals a known factor to within ``tolerance`` (relative).

    Known are the degrees above 1 and the number of micro-batches, else their square roots, else
    products of two of them; and one over each. All of the first kind that matches are named.
    ``roots_first`` is for norms of right gradients, which go wrong by square roots. None for a
    ratio of 1 or one that nothing explains.
    """
    if not (ratio > 0 and math.isfinite(ratio)) or _close(ratio, 1.0, tolerance):
        return None
    magnitude, prefix = (ratio, "") if ratio > 1 else (1 / ratio, "one over ")
    degrees = _degrees(layout, num_micro_batches)
    kinds = [_singles(degrees), _roots(degrees), _products(degrees)]
    if roots_first:
        kinds[:2] = reversed(kinds[:2])
    for factors in kinds:
        names = [words for value, words in factors if _close(magnitude, value, tolerance)]
        if names:
            return prefix + " or ".join(names)
    return None


def _close(value: float, expected: float, tolerance: float) -> bool:
    return abs(value / expected - 1) <= tolerance


def _degrees(layout: LayoutSpec, num_micro_batches: int) -> dict[str, int]:
    """What can scale a step by mistake -> by how much; only what is above 1."""
    degrees = {
        f"the data-parallel degree (dp={layout.data_parallel_size})": layout.data_parallel_size,
        f"the tensor-parallel degree (tp={layout.tp})": layout.tp,
        f"the context-parallel degree (cp={layout.cp})": layout.cp,
        f"the expert-parallel degree (ep={layout.ep})": layout.ep,
        f"the pipeline-parallel degree (pp={layout.pp})": layout.pp,
        f"the virtual stages of a rank (vpp={layout.vpp})": layout.vpp,
        f"the number of micro-batches (m={num_micro_batches})": num_micro_batches,
    }
    if layout.dp_replicate > 1 and layout.dp_shard > 1:
        degrees |= {
            f"the replicas of a shard (dp_replicate={layout.dp_replicate})": layout.dp_replicate,
            f"the shards of a replica (dp_shard={layout.dp_shard})": layout.dp_shard,
        }
    return {words: degree for words, degree in degrees.items() if degree > 1}


def _singles(degrees: dict[str, int]) -> Iterator[tuple[float, str]]:
    for words, degree in degrees.items():
        yield degree, words


def _roots(degrees: dict[str, int]) -> Iterator[tuple[float, str]]:
    for words, degree in degrees.items():
        yield math.sqrt(degree), f"the square root of {words}"


def _products(degrees: dict[str, int]) -> Iterator[tuple[float, str]]:
    for (words, degree), (other_words, other) in combinations(degrees.items(), 2):
        yield degree * other, f"the product of {words} and {other_words}"
