"""Which module, layer and micro-batch the operation that runs right now belongs to."""

import bisect
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from meshfit.run.model.transformer import Stage

_NEVER_FIRST = 2**63
"""Autograd gives nodes that only collect gradients a sequence number beyond this."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where in the model an operation runs.

    Attributes:
        module: its name in Hugging Face's model; empty outside of every module.
        layer: number of the layer it is in, in the whole model; None outside of layers.
        stage: which of this rank's stages; None outside of stages.
        micro_batch: counted from 0 on each stage; None outside of stages.
    """

    module: str = ""
    layer: int | None = None
    stage: int | None = None
    micro_batch: int | None = None


NOWHERE = Place()


class Places:
    """Follows the forwards of ``stages``; a backward operation is where its forward was.

    As ``StepPhases``, it tells them by autograd's sequence numbers: each forward of a module spans
    a range of them.
    """

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._names = {
            module: (name, _layer_of(stage, name), index)
            for index, stage in enumerate(stages)
            for name, module in stage.model.named_modules()
        }
        self._stages = {stage: index for index, stage in enumerate(stages)}
        self._forwards = [-1] * len(stages)
        self._stack: list[Place] = []
        self._boundaries: list[int] = []
        self._after: list[Place] = []
        """Place of the operations from each boundary on."""
        self._last = NOWHERE
        self._hooks = ExitStack()

    def __enter__(self) -> "Places":
        for handle in (
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ):
            self._hooks.callback(handle.remove)
        return self

    def __exit__(self, *_: object) -> None:
        self._hooks.close()

    def now(self) -> Place:
        """The place of the operation that runs at the moment of the call."""
        if self._stack:
            return self._stack[-1]
        if torch._C._current_graph_task_id() == -1:
            self._last = NOWHERE
            return NOWHERE
        node = torch._C._current_autograd_node()
        number = _NEVER_FIRST if node is None else node._sequence_nr()
        if number < _NEVER_FIRST:
            found = bisect.bisect_right(self._boundaries, number) - 1
            self._last = self._after[found] if found >= 0 else NOWHERE
        return self._last

    def _enter(self, module: nn.Module, _inputs: object) -> None:
        self._stack.append(self._place(module))
        self._bound()

    def _leave(self, _module: nn.Module, _inputs: object, _output: object) -> None:
        self._stack.pop()
        self._bound()

    def _place(self, module: nn.Module) -> Place:
        if module in self._stages:
            stage = self._stages[module]
            self._forwards[stage] += 1
            return Place(stage=stage, micro_batch=self._forwards[stage])
        if module not in self._names:
            return self._stack[-1] if self._stack else NOWHERE
        name, layer, stage = self._names[module]
        return Place(module=name, layer=layer, stage=stage, micro_batch=self._micro_batch(stage))

    def _micro_batch(self, stage: int) -> int:
        """Of the forward that runs, or of the one that a backward computes again."""
        inside = (self._stack[-1] if self._stack else self.now()).micro_batch
        return self._forwards[stage] if inside is None else inside

    def _bound(self) -> None:
        self._boundaries.append(int(torch._C._autograd._get_sequence_nr()))
        self._after.append(self._stack[-1] if self._stack else NOWHERE)


def _layer_of(stage: Stage, name: str) -> int | None:
    prefix = f"{stage.model.base_model_prefix}.{stage.family.layers}."
    inside, found, rest = name.partition(prefix)
    return int(rest.split(".")[0]) if found and not inside else None
