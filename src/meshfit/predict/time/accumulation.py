"""Seconds of adding the gradients of one micro-batch to those of earlier ones."""

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.costs.rates import Rates
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.held import Held

FloatArray = NDArray[np.float64]


def accumulation_s(held: Held, group: LayoutGroup, rate: Rates) -> FloatArray:
    """Seconds, per micro-batch, of adding gradients to those of earlier micro-batches where that is a
    pass of its own: each is read, and their sum read and written. Megatron's matmuls add to the sum
    themselves (``fused_gradient_accumulation``)."""
    asked, precision = group.training.runtime.fused_gradient_accumulation, group.training.precision
    if group.profile.kernels == "megatron" if asked is None else asked:
        return np.zeros(len(group))
    columns = group.columns
    in_shards = columns.shards_gradients & ~columns.keeps_gradients
    added = held.trained.on_shard(columns, in_shards)
    each = added * (precision.compute_bytes + 2 * precision.gradient_bytes)
    after_first = 1 - 1 / columns.micro_batches
    return np.asarray(after_first * each / rate.memory_bytes_per_s)
