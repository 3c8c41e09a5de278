"""The largest matrix of a layer: the gradient that backward makes whole before it adds it."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.memory.kept import kinds_of
from meshfit.predict.shape.adapters import adapter_elements
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.held import Parameters, divided, key_value_heads
from meshfit.predict.shape.schedule import RankShape
from meshfit.workload.counts import layer_tensors
from meshfit.workload.model import LayerSpec
from meshfit.workload.training import AdapterSpec

FloatArray = NDArray[np.float64]


def largest_matrix(shape: RankShape, group: LayoutGroup, *, frozen: bool = False) -> FloatArray:
    """Its elements on one rank of every layout. All experts of a rank are one tensor, gate and up
    of them together.

    Args:
        frozen: of the weights that adapters stand beside, not of the adapters.
    """
    adapter = None if frozen else group.training.adapter
    largest = np.zeros(len(group))
    for kind in kinds_of(shape):
        for parameters in _matrices(kind, group.model.hidden_size, adapter):
            largest = np.maximum(largest, parameters.on_rank(group.columns))
    return largest


@lru_cache(maxsize=1024)
def _matrices(layer: LayerSpec, hidden_size: int, adapter: AdapterSpec | None) -> tuple[Parameters, ...]:  # fmt: skip
    """All linears; gate and up of all experts are one."""
    heads = key_value_heads(layer)
    found: dict[Parameters, None] = {}
    for tensor in layer_tensors(layer, hidden_size, 1):
        size = tensor.elements if adapter is None else adapter_elements(tensor, adapter)
        if tensor.role != "linear" or not size:
            continue
        path = tensor.name.split(".")
        packed = 2 if "experts" in path and "down_proj" not in path else 1
        found[divided(tensor, size * packed, heads)] = None
    return tuple(found)
