"""Which part of a training step is running right now.

Needed to say what a tensor is for when it is made. Nothing is asked of the training loop: the
phases are read from autograd's state, from forward hooks and from the optimizer's step hooks.
"""

import bisect
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Literal

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.optim import Optimizer

Phase = Literal["forward", "loss", "loss_backward", "backward", "recompute", "optimizer", "between"]

HEAD_NAME = "lm_head"
"""Last component of the name of the module that makes the logits, as Hugging Face spells it."""


class StepPhases:
    """Phases of one training step over the modules ``parts`` (every stage this rank holds).

    - ``loss``: from the start of a forward of ``lm_head`` until the next module of ``parts`` runs
      forward or a backward begins; ``loss_backward``: backward of operations recorded in it.
    - ``recompute``: a module's forward inside a backward, that is activation checkpointing.
    - ``between``: outside all of these, with gradients off (clipping, zeroing, logging).

    Which backward operations belong to the loss is told by autograd's sequence numbers, which
    also holds for pipelines, where the backward of one micro-batch follows the forward of others.
    """

    def __init__(self, parts: Sequence[nn.Module], optimizer: Optimizer | None) -> None:
        named = [(name, module) for part in parts for name, module in part.named_modules()]
        heads = [module for name, module in named if name.rpartition(".")[2] == HEAD_NAME]
        self._heads = set(heads)
        self._others = {module for _, module in named}.difference(
            *(head.modules() for head in heads)
        )
        self._optimizer = optimizer
        self._depth = 0
        self._in_loss = False
        self._in_optimizer = False
        self._loss_starts: list[int] = []
        self._loss_ends: list[float] = []
        self._hooks = ExitStack()

    def __enter__(self) -> "StepPhases":
        handles = [
            register_module_forward_pre_hook(self._enter_forward),
            register_module_forward_hook(self._leave_forward, always_call=True),
        ]
        if self._optimizer is not None:
            handles += [
                self._optimizer.register_step_pre_hook(self._enter_optimizer),
                self._optimizer.register_step_post_hook(self._leave_optimizer),
            ]
        for handle in handles:
            self._hooks.callback(handle.remove)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._hooks.close()

    def now(self) -> Phase:
        """The phase of the operation that runs at the moment of the call."""
        if self._in_optimizer:
            return "optimizer"
        if _in_backward():
            self._in_loss = False
            if self._depth > 0:
                return "recompute"
            return "loss_backward" if self._node_is_of_loss() else "backward"
        if self._in_loss:
            return "loss"
        return "forward" if self._depth > 0 or torch.is_grad_enabled() else "between"

    def _enter_forward(self, module: nn.Module, _inputs: object) -> None:
        self._depth += 1
        if _in_backward():
            return
        if module in self._heads:
            self._end_loss()
            self._in_loss = True
            self._loss_starts.append(_next_sequence_number())
            self._loss_ends.append(float("inf"))
        elif module in self._others:
            self._end_loss()

    def _leave_forward(self, _module: nn.Module, _inputs: object, _output: object) -> None:
        self._depth -= 1

    def _end_loss(self) -> None:
        """Close the span of sequence numbers of the last loss, if it is still open."""
        self._in_loss = False
        if self._loss_ends and self._loss_ends[-1] == float("inf"):
            self._loss_ends[-1] = _next_sequence_number()

    def _node_is_of_loss(self) -> bool:
        node = torch._C._current_autograd_node()
        if node is None:
            return False
        number = node._sequence_nr()
        span = bisect.bisect_right(self._loss_starts, number) - 1
        return span >= 0 and number < self._loss_ends[span]

    def _enter_optimizer(self, *_: object) -> None:
        self._in_loss = False
        self._in_optimizer = True

    def _leave_optimizer(self, *_: object) -> None:
        self._in_optimizer = False


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)


def _next_sequence_number() -> int:
    return int(torch._C._autograd._get_sequence_nr())
