"""What a group of layouts runs on: rates, links, and how far computation hides communication."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.costs.collectives import AxisGroup, Collective, CollectiveCosts
from meshfit.predict.costs.constants import TimeConstants, shipped_constants
from meshfit.predict.costs.rates import Rates
from meshfit.predict.costs.tables.chips import CHIPS
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.time.exchange.axes import Axes, place_axes
from meshfit.predict.time.messages.message import Size
from meshfit.predict.time.terms import Terms

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a group of layouts runs on.

    Attributes:
        overlap: share of computation under which communication can hide.
        contention: computation lost beside hidden communication, as a share of the latter's time.
        tensor_overlap: share of a tensor-parallel collective that hides when it is cut into pieces.
        straggling: by how much a step grows with each doubling of hosts.
    """

    rates: Rates
    costs: CollectiveCosts
    overlap: float
    axes: Axes
    contention: float = 0.0
    tensor_overlap: float = 0.0
    straggling: float = 0.0

    def seconds(self, collective: Collective, size: Size, ranks: AxisGroup) -> FloatArray:
        """Seconds of one collective with nothing beside it; 0 for one rank, and of no content."""
        if ranks.is_single:
            return np.zeros(ranks.degree.shape)
        size_bytes = size.bytes
        return np.where(size_bytes > 0, self.costs.seconds(collective, size_bytes, ranks), 0.0)

    def shown(self, seconds: FloatArray, room: FloatArray) -> FloatArray:
        """What communication costs with ``room`` seconds of computation beside it: what sticks out,
        and what that computation loses to it."""
        exposed = np.maximum(0.0, seconds - room)
        return np.asarray(exposed + self.contention * (seconds - exposed))

    def beside(self, exposed: Terms) -> FloatArray | float:
        """Seconds of a layer's exposed collectives under which states can be gathered and scattered:
        those of tensor parallelism inside a domain, where states cross to others over a network that
        those do not use."""
        tensor = sum(seconds for name, seconds in exposed.items() if name.endswith(".tp"))
        return np.where(self._states_go_further, tensor, 0.0)

    @property
    def _states_go_further(self) -> BoolArray:
        tp, states = self.axes.tp, self.axes.dense.shards
        return (tp.members[0] >= tp.degree) & (states.members[0] < states.degree)


def machine_for(
    group: LayoutGroup,
    rates: Rates,
    costs: CollectiveCosts,
    constants: TimeConstants | None = None,
) -> Machine:
    """The machine as ``group`` sees it. CPU ranks hide nothing: they carry out collectives too.

    What is known of real steps holds for accelerators of the catalogue; on others nothing is lost.
    """
    accelerator = costs.topology.accelerator
    axes = place_axes(group, costs)
    if accelerator.name not in CHIPS:
        is_cuda = accelerator.device_type == "cuda"
        overlap = group.profile.overlap_fraction if is_cuda else 0.0
        return Machine(rates=rates, costs=costs, overlap=overlap, axes=axes)
    known = constants or shipped_constants()
    taken = group.training.runtime.communication_sms
    return Machine(
        rates=rates,
        costs=costs,
        overlap=group.profile.overlap_fraction * known["overlap.data"],
        axes=axes,
        contention=known["contention"] if taken is None else taken,
        tensor_overlap=known["overlap.tensor"],
        straggling=known["straggler.per_octave"],
    )
