"""The tensors that a run goes on from, by a name that is the same under every layout.

Parameters, persistent buffers (a router's balancing bias is one) and the optimizer's state of each
parameter. A DTensor knows which part of the whole this rank has; a plain tensor is whole. Dropout is
off and data are a function of the step, so there is no random state to keep.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.optim import Optimizer

from meshfit.errors import InputError
from meshfit.run.gradients import local_tensor
from meshfit.run.parallelize import RankModel

_MODEL, _BUFFER, _OPTIMIZER = "model", "buffer", "optimizer"
_SHARDS = " in "
"""Between the name of a parameter that packs cut matrices and the number of their shards."""


class TrainingState:
    """What of a run's state this rank holds."""

    def __init__(self, model: RankModel, optimizer: Optimizer) -> None:
        # ZeroRedundancyOptimizer keeps the states of its part of the parameters in one inside.
        self._optimizer = getattr(optimizer, "optim", optimizer)
        self._parameters = list(_named_parameters(model))
        self._buffers = dict(_persistent_buffers(model))

    def tensors(self) -> dict[str, Tensor]:
        """Name -> tensor, which shares memory with the run's own."""
        found = {f"{_BUFFER}.{name}": buffer for name, buffer in self._buffers.items()}
        for name, parameter in self._parameters:
            found.setdefault(f"{_MODEL}.{name}", parameter.detach())  # of two copies, the first
            for key, value in self._optimizer.state.get(parameter, {}).items():
                found.setdefault(f"{_OPTIMIZER}.{name}.{key}", value)
        return found

    def size_bytes(self) -> int:
        """Bytes of this rank's part."""
        return sum(local_tensor(tensor).nbytes for tensor in self.tensors().values())

    def prepare(self, metadata: Metadata) -> dict[str, Tensor]:
        """Tensors to load what ``metadata`` describes into, the optimizer's state made anew.

        Raises:
            InputError: the checkpoint lacks one, or has it in another shape.
        """
        stored = metadata.state_dict_metadata
        owned = {id(p) for group in self._optimizer.param_groups for p in group["params"]}
        states = _stored_states(stored)
        for name, parameter in self._parameters:
            _check_stored(f"{_MODEL}.{name}", stored)
            if id(parameter) in owned:
                if states and name not in states:
                    raise InputError(
                        f"the checkpoint has no optimizer state of {name}, but of others"
                    )
                self._optimizer.state[parameter] = _empty_state(parameter, states.get(name, {}))
        tensors = self.tensors()
        for name, tensor in tensors.items():
            _check_shape(name, tensor, stored)
        return tensors

    def settle(self) -> None:
        """After loading: a second copy of a parameter on this rank gets the first one's state."""
        first: dict[str, nn.Parameter] = {}
        for name, parameter in self._parameters:
            source = first.setdefault(name, parameter)
            if source is not parameter:
                _copy(source, parameter, self._optimizer)


def _named_parameters(model: RankModel) -> Iterator[tuple[str, nn.Parameter]]:
    """All that the optimizer steps; a tied head's copy on another stage by its embedding's name.

    Of matrices that are packed and cut, the name says in how many shards: another number of them has
    another order (``run.model.packed``), and finds nothing under its own name.
    """
    packings = model.packings()
    for name, parameter in model.parameters_by_name().items():
        packing = packings.get(name)
        yield (name if packing is None else f"{name}{_SHARDS}{packing.shards} shards"), parameter
    if model.tied_copy is not None:
        last = model.stages[-1]
        prefix = last.model.base_model_prefix
        yield f"{prefix}.{last.family.embeddings[0]}.weight", model.tied_copy


def _persistent_buffers(model: RankModel) -> Iterator[tuple[str, Tensor]]:
    for stage in model.stages:
        for path, module in stage.model.named_modules():
            for name, buffer in module.named_buffers(recurse=False):
                if name not in module._non_persistent_buffers_set:
                    yield f"{path}.{name}", buffer


def _stored_states(stored: Mapping[str, object]) -> dict[str, dict[str, TensorStorageMetadata]]:
    """Parameter -> key of its optimizer state -> what the checkpoint has of it."""
    states: dict[str, dict[str, TensorStorageMetadata]] = defaultdict(dict)
    for name, what in stored.items():
        if name.startswith(f"{_OPTIMIZER}.") and isinstance(what, TensorStorageMetadata):
            parameter, _, key = name.removeprefix(f"{_OPTIMIZER}.").rpartition(".")
            states[parameter][key] = what
    return states


def _empty_state(
    parameter: nn.Parameter, stored: Mapping[str, TensorStorageMetadata]
) -> dict[str, Tensor]:
    """State of one parameter as the checkpoint has it: like the parameter, or one number."""
    device = local_tensor(parameter).device
    return {
        key: torch.zeros_like(parameter.detach(), dtype=what.properties.dtype)
        if what.size == parameter.shape
        else torch.zeros(what.size, dtype=what.properties.dtype, device=device)
        for key, what in stored.items()
    }


def _check_shape(name: str, tensor: Tensor, stored: Mapping[str, object]) -> None:
    what = _check_stored(name, stored)
    if what.size != tensor.shape:
        raise InputError(
            f"the checkpoint has {name} in the shape {tuple(what.size)}, but this run in "
            f"{tuple(tensor.shape)}"
        )


def _check_stored(name: str, stored: Mapping[str, object]) -> TensorStorageMetadata:
    what = stored.get(name)
    if isinstance(what, TensorStorageMetadata):
        return what
    other = next((one for one in stored if _plain(one) == _plain(name)), None)
    if other is None:
        raise InputError(f"the checkpoint has no {name}")
    ours = name.removeprefix(_plain(name)).strip() or "whole"
    raise InputError(
        f"the checkpoint has {other}, but this run has it {ours}: matrices that are packed "
        f"in one lie in the order of their shards; resume under the same tp (of experts under ep, the "
        f"same etp)"
    )


def _plain(name: str) -> str:
    """A parameter's name without the number of shards that its packed matrices are cut in."""
    return name.partition(_SHARDS)[0]


@torch.no_grad()
def _copy(source: nn.Parameter, target: nn.Parameter, optimizer: Optimizer) -> None:
    local_tensor(target).copy_(local_tensor(source))
    theirs = optimizer.state.get(target, {})  # none where ZeRO stage 1 gave it to another rank
    for key, value in optimizer.state.get(source, {}).items():
        if key in theirs:
            local_tensor(theirs[key]).copy_(local_tensor(value))
