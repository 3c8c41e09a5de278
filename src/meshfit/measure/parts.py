"""Marks where one forward and backward pass from one part of a model to the next.

Parts follow one another, each taking what the one before it gives. That a part's output is there ends
its forward; that the gradient of its output is there ends the backward of whatever comes behind it. So
what lies between two marks is one part's, whatever its inside looks like: backward hooks of modules
would leave out one whose input needs no gradient, such as an embedding.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn


class PartMarks:
    """While entered, ``mark()`` is called where each part ends, forward and backward.

    Args:
        parts: in the order in which they run.
        mark: what is kept of such a moment: a time, or the memory then in use.
    """

    def __init__(self, parts: Sequence[nn.Module], mark: Callable[[], Any]) -> None:
        self._parts = parts
        self._mark = mark
        self._hooks = ExitStack()
        self._without_gradient = 0
        self.marks: list[Any] = []

    def add(self, *_: object) -> None:
        """A mark of one's own: where the pass begins, or behind the last part's forward."""
        self.marks.append(self._mark())

    def end(self) -> None:
        """The mark of the pass's end; once more for each part whose output needed no gradient (frozen
        weights before any that are trained), of which backward has nothing."""
        self.add()
        self.marks += self.marks[-1:] * self._without_gradient

    def __enter__(self) -> "PartMarks":
        for part in self._parts:
            self._hooks.callback(part.register_forward_hook(self._part_done).remove)
        return self

    def __exit__(self, *_: object) -> None:
        self._hooks.close()

    def _part_done(self, _part: nn.Module, _inputs: Any, output: Any) -> None:
        self.add()
        hidden: torch.Tensor = output[0] if isinstance(output, tuple) else output
        if hidden.requires_grad:
            hidden.register_hook(self.add)
        else:
            self._without_gradient += 1
