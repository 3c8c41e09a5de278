"""The formula of collectives on systems that its constants were not fitted to."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.costs.collectives import AxisGroup, Collective, CollectiveCosts
from meshfit.predict.costs.constants import TimeConstants, link_constants
from meshfit.predict.costs.fitting import fit_constants, from_the_middle
from meshfit.validate.collectives.rows import Case, CollectiveRow
from meshfit.validate.collectives.systems import topology_of

FloatArray = NDArray[np.float64]

NETWORK = ("line", "ramp", "hop", "gather")
ROUNDS = 10
MOST_REMEMBERED = 100
TOLERANCE = 0.2
"""Relative error at which a point weighs half."""
PRIOR = 4.0
"""As ``fitting.PRIOR``: constants of links that are left out stay in the middle of their range."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One collective of one size; ``seconds`` is the median over library versions and types."""

    case: Case
    size_bytes: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Points of one collective on one topology."""

    points: tuple[Point, ...]
    costs: CollectiveCosts
    group: AxisGroup
    sizes: FloatArray
    _known: dict[tuple[float, ...], FloatArray] = field(default_factory=dict, repr=False)

    def predicted(self, constants: TimeConstants) -> FloatArray:
        """Seconds by the formula, nothing else running; remembered, since a fit moves one constant
        at a time and most are of other links."""
        key = tuple(constants[name] for name in self._names)
        if key not in self._known:
            if len(self._known) > MOST_REMEMBERED:
                self._known.clear()
            self._known[key] = self._computed(constants)
        return self._known[key]

    @cached_property
    def _names(self) -> list[str]:
        """Of the constants that its prediction rests on."""
        own = {self.points[0].case.collective, self.costs.link, "EFA", *NETWORK}
        return [name for name in link_constants().entries if name.partition(".")[2] in own]

    def _computed(self, constants: TimeConstants) -> FloatArray:
        costs = CollectiveCosts(
            topology=self.costs.topology, links=constants, is_alone=True, uses_node_curves=False
        )
        return costs.formula_s(self.points[0].case.collective, self.sizes, self.group)


@dataclass(frozen=True)
class Curves:
    """Measured curves, and the formula on all of their points."""

    curves: tuple[Curve, ...]

    @property
    def points(self) -> tuple[Point, ...]:
        return tuple(point for curve in self.curves for point in curve.points)

    @property
    def systems(self) -> tuple[str, ...]:
        """Of every point."""
        return tuple(point.case.system for point in self.points)

    @property
    def seconds(self) -> FloatArray:
        return np.array([point.seconds for point in self.points])

    def predicted(self, constants: TimeConstants) -> FloatArray:
        """Seconds of every point by the formula."""
        return np.concatenate([curve.predicted(constants) for curve in self.curves])

    def without(self, system: str) -> "Curves":
        """All but those of one system."""
        others = (c for c in self.curves if c.points[0].case.system != system)
        return Curves(tuple(others))

    def of(self, system: str) -> "Curves":
        """Those of one system."""
        own = (c for c in self.curves if c.points[0].case.system == system)
        return Curves(tuple(own))


def measured_curves(rows: Sequence[CollectiveRow]) -> Curves:
    """The points of rows that can be modelled (``systems.topology_of``), each the median of its
    runs."""
    times: dict[tuple[Case, int], list[float]] = defaultdict(list)
    for row in rows:
        times[row.case, row.size_bytes].append(row.seconds)
    together: dict[tuple[str, Collective, int], list[Point]] = defaultdict(list)
    for (case, size), seconds in times.items():
        topology = topology_of(case.system, case.nodes, case.ranks // case.nodes)
        point = Point(case=case, size_bytes=size, seconds=float(np.median(seconds)))
        together[case.system, case.collective, id(topology)].append(point)
    return Curves(tuple(_curve(points) for points in together.values()))


def _curve(points: Sequence[Point]) -> Curve:
    case = points[0].case
    costs = CollectiveCosts(topology=topology_of(case.system, case.nodes, case.ranks // case.nodes))
    degree = np.array([point.case.ranks for point in points], dtype=np.int64)
    return Curve(
        points=tuple(points),
        costs=costs,
        group=costs.place(degree, np.ones_like(degree)),
        sizes=np.array([point.size_bytes for point in points], dtype=np.float64),
    )


def fitted_to(curves: Curves) -> TimeConstants:
    """Constants fitted to these curves, from the middle of every range."""
    return fit_constants(
        curves.predicted,
        curves.seconds,
        curves.systems,
        start=from_the_middle(link_constants()),
        rounds=ROUNDS,
        tolerance=TOLERANCE,
        prior=PRIOR,
    )
