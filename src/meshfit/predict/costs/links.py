"""How long a collective takes over links, from what it sends and how often it waits.

A message is cut into pieces so that hops work side by side. With ``start`` the time of the smallest
message and ``wire`` that of the bytes at full rate, the best cut takes

    (sqrt(start) + sqrt(wire))^2 = start + wire + 2 sqrt(start wire)

(fewer pieces idle longer while the pipeline fills, more of them start more often). Measured curves
have the same shape with a share of the last term, the ramp. Constants are those of ``links.csv``:
they belong to a collective of the library or to a kind of link, and are fitted over systems.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.costs.constants import TimeConstants
from meshfit.predict.costs.tables.chips import LINK_OF

FloatArray = NDArray[np.float64]

MOST_RANKS_IN_RING = 4
"""Of one node; NCCL 2.29 lets the switches sum (NVLS) over more: curves of H100 and B200."""

_LIKE = {"send_recv": "all_to_all", "broadcast": "all_gather"}
"""Collectives that were not measured, and the measured one that moves data as they do."""


def pipelined_s(start_s: FloatArray, wire_s: FloatArray, ramp: float) -> FloatArray:
    """Seconds of a message cut into pieces; ``ramp`` 1 is the ideal pipeline's, 0 has none."""
    return np.asarray(start_s + wire_s + 2 * ramp * np.sqrt(start_s * wire_s))


@dataclass(frozen=True, kw_only=True)
class LinkLaw:
    """One collective over the links of one node type, and over a network beyond.

    Attributes:
        kind: of the link inside a node, as in ``links.csv``.
    """

    constants: TimeConstants
    collective: str
    kind: str

    @property
    def _measured(self) -> str:
        return _LIKE.get(self.collective, self.collective)

    def start_s(self, ranks_inside: FloatArray, latency_s: float) -> FloatArray:
        """Seconds of the smallest message over so many ranks of one node."""
        known, name = self.constants, self._measured
        hops = known[f"hop.{name}"] * latency_s * (ranks_inside - 1)
        return np.asarray(known[f"pace.{self.kind}"] * (known[f"launch.{name}"] + hops))

    def share_inside(self, ranks_inside: FloatArray) -> FloatArray:
        """Bandwidth of large messages over the link's rate, among so many ranks of one node."""
        known, name = self.constants, self._measured
        own_piece = known[f"local.{name}"] / np.maximum(ranks_inside, 2.0)
        share = known[f"share.{name}"] * known[f"link.{self.kind}"] * (1 - own_piece)
        summed = known.entries.get(f"in_switch.{self.kind}")
        if self.collective != "all_reduce" or summed is None:
            return np.asarray(share)
        return np.where(ranks_inside > MOST_RANKS_IN_RING, share * summed.value, share)

    @property
    def ramp_inside(self) -> float:
        return self.constants[f"ramp.{self._measured}"]


def link_kind(accelerator_name: str, level_kind: str) -> str:
    """Which kind of link joins accelerators of one node; PCIe where they have none of their own."""
    own = LINK_OF.get(accelerator_name, "PCIe")
    return "PCIe" if level_kind == "bus" else own
