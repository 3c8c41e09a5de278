"""Experts in weights files that hold one tensor for each of them, as checkpoints on the Hub do.

transformers stacks them: ``experts.gate_up_proj`` [E, 2I, H] has each expert's gate above its up
projection, ``experts.down_proj`` [E, H, I].
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

Box = tuple[slice, ...]

_PARTS = {
    "gate_up_proj": (("gate_proj", "w1"), ("up_proj", "w3")),
    "down_proj": (("down_proj", "w2"),),
}
"""Stacked parameter -> what lies in it one below the other: names in Qwen3-MoE's and DeepSeek-V3's
files, and in Mixtral's."""

_BLOCK, _MIXTRAL_BLOCK = ".mlp.", ".block_sparse_moe."


class Weights(Protocol):
    """A folder that parts of tensors can be read from."""

    def read(self, names: Sequence[str], shape: Sequence[int], box: Box) -> Tensor:
        """The part ``box`` of the first of ``names`` that is there, a tensor of ``shape``."""


def other_names(name: str) -> Iterator[str]:
    """What a file may call a router's tensor beside ``name``."""
    if _BLOCK in name:
        yield name.replace(_BLOCK, _MIXTRAL_BLOCK)


def is_stacked(name: str) -> bool:
    """Whether a parameter stacks one tensor of every expert."""
    return ".experts." in name and name.rpartition(".")[2] in _PARTS


def read_each(weights: Weights, name: str, shape: Sequence[int], box: Box) -> Tensor:
    """The part ``box`` of the stacked parameter ``name``, from the tensors of the experts in it.

    Raises:
        InputError: one of them is not in the folder, or has another shape.
    """
    prefix, _, stacked = name.rpartition(".")
    parts = _PARTS[stacked]
    experts, rows, columns = box
    whole = shape[1] // len(parts), shape[2]
    return torch.stack(
        [
            torch.cat(
                [
                    weights.read(
                        _names(prefix, expert, part), whole, (_within(rows, i, whole[0]), columns)
                    )
                    for i, part in enumerate(parts)
                ]
            )
            for expert in range(experts.start, experts.stop)
        ]
    )


def _names(prefix: str, expert: int, part: tuple[str, str]) -> tuple[str, str]:
    plain, mixtral = part
    return (
        f"{prefix}.{expert}.{plain}.weight",
        f"{prefix}.{expert}.{mixtral}.weight".replace(_BLOCK, _MIXTRAL_BLOCK),
    )


def _within(rows: slice, index: int, height: int) -> slice:
    """What ``rows`` of a stack of parts has of part ``index``; each is ``height`` high."""
    start = min(max(rows.start - index * height, 0), height)
    stop = min(max(rows.stop - index * height, 0), height)
    return slice(start, stop)
