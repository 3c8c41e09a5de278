"""One step of a schedule's program."""

from typing import Literal, NamedTuple

Kind = Literal["F", "B", "I", "W"]
"""Forward; backward; the backward's two halves where they are split: gradients of the input, and
gradients of the weights (2401.10241, section 2)."""

KINDS: tuple[Kind, ...] = ("F", "B", "I", "W")


class Action(NamedTuple):
    """What a pipeline rank does with one micro-batch on one of its stages."""

    kind: Kind
    stage: int
    micro_batch: int

    def __str__(self) -> str:
        """As torch.distributed.pipelining writes it: stage, kind, micro-batch."""
        return f"{self.stage}{self.kind}{self.micro_batch}"
