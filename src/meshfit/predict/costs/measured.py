"""Curves of collectives measured on the cluster itself (``collectives.MeasuredCurves``)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.costs.collectives import AxisGroup, Collective
from meshfit.predict.costs.tables.collectives import NodeCurve

FloatArray = NDArray[np.float64]
Shape = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class ClusterCurves:
    """Curve of every collective and shape of group (members met on each level, innermost first).

    Of several curves of one shape the one with most groups at once counts: so does an axis run.
    Beyond its largest size a curve goes on at its last bandwidth.
    """

    curves: Mapping[Shape, NodeCurve]

    def seconds(self, kind: Collective, size_bytes: FloatArray, group: AxisGroup) -> FloatArray:
        """Seconds; NaN where no curve has this collective and shape."""
        sizes = np.broadcast_to(size_bytes, group.degree.shape)
        found = np.full(group.degree.shape, np.nan)
        for (collective, members), curve in self.curves.items():
            if collective != kind or len(members) != len(group.members):
                continue
            is_shape = np.all(
                [here == count for here, count in zip(group.members, members, strict=True)], axis=0
            )
            if is_shape.any():
                found[is_shape] = curve.seconds(sizes[is_shape])
        return found


def cluster_curve(size_bytes: Sequence[int], seconds: Sequence[float]) -> NodeCurve:
    """Points in order of size; a larger message is never taken to be faster than a smaller one."""
    steady = np.maximum.accumulate(np.asarray(seconds, dtype=np.float64))
    return NodeCurve(np.log2(np.asarray(size_bytes, dtype=np.float64)), np.log2(steady))
