"""The moments of one micro-batch at which memory may peak."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.pick import largest, picked

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MOMENTS: tuple[str, ...] = (
    "forward_end",
    "head",
    "loss",
    "head_backward",
    "backward_start",
    "layer_passed",
    "backward_end",
    "optimizer",
)
"""All of one micro-batch while the schedule has most in flight. ``forward_end``: the last layer's
output is made. ``head``: the logits are made.
``loss``: gradients of the logits. ``head_backward``: the head's gradient. ``backward_start``: inside
the last layer. ``layer_passed``: its gradients are whole and about to be reduced.
``backward_end``: inside the first layer, with all gradients. ``optimizer``: states and the step's
temporaries. Between the last two of backward memory changes linearly with the layers passed."""


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Bytes of one category at every moment of ``MOMENTS``."""

    forward_end: FloatArray
    head: FloatArray
    loss: FloatArray
    head_backward: FloatArray
    backward_start: FloatArray
    layer_passed: FloatArray
    backward_end: FloatArray
    optimizer: FloatArray

    def stacked(self) -> FloatArray:
        """[moments, N]."""
        return np.stack([getattr(self, name) for name in MOMENTS])


def at_peak(by_category: Mapping[str, FloatArray]) -> tuple[IntArray, dict[str, FloatArray]]:
    """For every layout the moment at which all categories ([moments, N]) together are largest, and
    each of them then."""
    moment = largest(sum(by_category.values(), start=np.zeros(1)))
    return moment, {name: picked(moment, values) for name, values in by_category.items()}
