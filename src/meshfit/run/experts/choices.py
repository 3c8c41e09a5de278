"""A reference's router choices: kept, compared with one's own, or taken instead of them.

Under bf16 a rounding error can make a router prefer another expert, and from there on two right
implementations differ by more than rounding. So a reference of one process leaves its choices, a
layout counts how many of its own were others, and where some were it runs the judged steps again with
the reference's.

Legend: T tokens of a micro-batch, K choices of a token.
"""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from meshfit.run.experts.log import is_recomputing

_FILE = "choices.safetensors"


def has_choices(folder: Path) -> bool:
    """Whether a reference left its choices in ``folder``."""
    return (folder / _FILE).exists()


class Choices(Protocol):
    """What becomes of a router's choices."""

    def begin_step(self, step: int) -> None:
        """The routers' next calls belong to ``step``."""

    def take(self, layer: int, chosen_TK: Tensor) -> Tensor:
        """What the router of ``layer``, which chose ``chosen_TK``, shall choose."""


class OwnChoices:
    """Every router decides for itself."""

    def begin_step(self, step: int) -> None:
        pass

    def take(self, layer: int, chosen_TK: Tensor) -> Tensor:
        return chosen_TK


class KeptChoices:
    """Every router decides for itself; what it chose in the first ``num_steps`` steps is kept."""

    def __init__(self, num_steps: int) -> None:
        self._num_steps = num_steps
        self._step = 0
        self._kept: dict[tuple[int, int], list[Tensor]] = defaultdict(list)

    def begin_step(self, step: int) -> None:
        self._step = step

    def take(self, layer: int, chosen_TK: Tensor) -> Tensor:
        if self._step < self._num_steps and not is_recomputing():
            self._kept[self._step, layer].append(chosen_TK.to(torch.int16))
        return chosen_TK

    def save(self, folder: Path) -> None:
        """Write what one process, which sees all tokens, chose: [tokens, K] for a step and layer."""
        whole = {_name(*key): torch.cat(parts).cpu() for key, parts in self._kept.items()}
        save_file(whole, folder / _FILE)

    def differing(self, reference: "ReferenceChoices") -> int:
        """Tokens of this rank for which a router chose other experts than the reference's."""
        return sum(
            int(_differ(chosen_TK.cpu(), reference.of(step, layer, index)).sum())
            for (step, layer), parts in self._kept.items()
            for index, chosen_TK in enumerate(parts)
        )


def _name(step: int, layer: int) -> str:
    return f"{step}.{layer}"


def _differ(chosen_TK: Tensor, expected_TK: Tensor) -> Tensor:
    """[T]: whether not the same experts were chosen, in whatever order."""
    return (chosen_TK.sort(dim=1).values != expected_TK.sort(dim=1).values).any(dim=1)


@dataclass(frozen=True, kw_only=True)
class TokensOfRank:
    """Which tokens of a whole step this rank's routers see: ``positions`` of sequences from ``first``
    on, ``micro_batch_size`` of them at a time."""

    sequence_length: int
    first: int
    micro_batch_size: int
    positions: Tensor

    def of_micro_batch(self, index: int) -> Tensor:
        """[T]: their places among all tokens of the step, sequence behind sequence."""
        first = self.first + index * self.micro_batch_size
        sequences = torch.arange(first, first + self.micro_batch_size)
        return (sequences.unsqueeze(1) * self.sequence_length + self.positions).flatten()


@dataclass(frozen=True, kw_only=True)
class ReferenceChoices:
    """What a reference left in ``folder``, as the routers of one rank come to need it."""

    folder: Path
    tokens: TokensOfRank

    def of(self, step: int, layer: int, micro_batch: int) -> Tensor:
        """[T, K] int16, in host memory."""
        with safe_open(self.folder / _FILE, framework="pt") as file:
            whole = file.get_tensor(_name(step, layer))
        return whole[self.tokens.of_micro_batch(micro_batch)]


class ReplayedChoices:
    """Every router takes the reference's choices.

    A router is called once a micro-batch in every forward, and in the same order again where
    recomputation runs forwards anew.
    """

    def __init__(self, reference: ReferenceChoices) -> None:
        self._reference = reference
        self._step = 0
        self._calls: dict[tuple[int, bool], int] = {}

    def begin_step(self, step: int) -> None:
        self._step = step
        self._calls = {}

    def take(self, layer: int, chosen_TK: Tensor) -> Tensor:
        call = layer, is_recomputing()
        micro_batch = self._calls[call] = self._calls.get(call, -1) + 1
        return self._reference.of(self._step, layer, micro_batch).to(chosen_TK)
