"""One parameter tensor, and what is done with it."""

import math
from dataclasses import dataclass, replace
from typing import Literal

Role = Literal["linear", "router", "convolution", "lookup", "vector"]
"""``linear``: a matmul that quantisation applies to; ``router`` and ``convolution``: every token is
multiplied with it, but it stays in high precision; ``lookup``: an embedding; ``vector``: norms,
biases, decays and whatever else works elementwise."""

Split = Literal["column", "row"]
"""How tensor parallelism cuts a tensor: by its output or by its input. None: each rank holds it."""

MATMUL_ROLES: frozenset[Role] = frozenset(("linear", "router", "convolution"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """A tensor, or several equal ones.

    Attributes:
        name: below its block; spelled as transformers' Llama spells it where families differ.
        shape: output dim first.
        copies: how many there are (experts, layers of a tower).
        copies_used: how many of them one token uses.
    """

    name: str
    shape: tuple[int, ...]
    role: Role = "vector"
    split: Split | None = None
    copies: int = 1
    copies_used: int = 1

    @property
    def elements(self) -> int:
        """Parameters of all copies."""
        return math.prod(self.shape) * self.copies

    @property
    def elements_used(self) -> int:
        """Parameters that one token uses."""
        return math.prod(self.shape) * self.copies_used

    @property
    def matmul_elements(self) -> int:
        """Weights that one token is multiplied with."""
        return self.elements_used if self.role in MATMUL_ROLES else 0

    def below(self, prefix: str) -> "Tensor":
        """The same tensor named inside ``prefix``."""
        return replace(self, name=f"{prefix}.{self.name}")

    def repeated(self, copies: int, used: int | None = None) -> "Tensor":
        """``copies`` of this tensor, of which a token uses ``used`` (None: all)."""
        used = copies if used is None else used
        return replace(self, copies=self.copies * copies, copies_used=self.copies_used * used)


def linear(
    name: str,
    inputs: int,
    outputs: int,
    *,
    bias: bool = False,
    split: Split | None = None,
    role: Role = "linear",
) -> tuple[Tensor, ...]:
    """Weight and, with ``bias``, bias of one linear map.

    A column split cuts the bias with the outputs; a row split leaves it whole on every rank.
    """
    weight = Tensor(name=f"{name}.weight", shape=(outputs, inputs), role=role, split=split)
    if not bias:
        return (weight,)
    cut: Split | None = "column" if split == "column" else None
    return (weight, Tensor(name=f"{name}.bias", shape=(outputs,), split=cut))


def vector(name: str, size: int, *, split: Split | None = None) -> Tensor:
    """``size`` parameters that work elementwise."""
    return Tensor(name=name, shape=(size,), split=split)


def norm(name: str, size: int, *, vectors: int = 1) -> tuple[Tensor, ...]:
    """A norm over ``size`` channels: with a weight, a bias too (``vectors`` 2), or neither (0)."""
    return tuple(vector(f"{name}.{kind}", size) for kind in ("weight", "bias")[:vectors])


def lookup(name: str, rows: int, width: int, *, split: Split | None = None) -> Tensor:
    """An embedding table."""
    return Tensor(name=f"{name}.weight", shape=(rows, width), role="lookup", split=split)
