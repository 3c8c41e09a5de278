"""Corrections learned from runs, and how wide the intervals are without them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meshfit.breakdown import Basis
from meshfit.cluster.topology import Topology

FloatArray = NDArray[np.float64]

COMPUTED_TERMS: tuple[str, ...] = ("compute", "recompute", "optimizer")
SHARED_TERMS: tuple[str, ...] = ("bubble", "other")
"""Time that all other terms cause together: idling, and waiting for stragglers."""


@dataclass(frozen=True, kw_only=True)
class Correction:
    """What a predicted quantity is multiplied by, and the range that leaves.

    Attributes:
        factor: measured over predicted.
        spread: the interval reaches from middle / spread to middle * spread.
        basis: what factor and spread rest on.
        samples: runs behind them.
    """

    factor: float = 1.0
    spread: float
    basis: Basis = "formula"
    samples: int = 0


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Corrections that hold on one accelerator under one engine.

    Attributes:
        compute: of ``COMPUTED_TERMS``; collectives: of what is exposed of them.
        step_time: of the whole step beside these; its spread is that of the step.
        memory: of what the allocator holds.
    """

    accelerator: str
    engine: str
    compute: Correction
    collectives: Correction
    step_time: Correction
    memory: Correction

    def inverse(self) -> "Calibration":
        """What takes these corrections back."""
        return replace(
            self,
            **{
                name: replace(getattr(self, name), factor=1 / getattr(self, name).factor)
                for name in ("compute", "collectives", "step_time", "memory")
            },
        )

    def corrected(self, terms: FloatArray, names: Sequence[str]) -> FloatArray:
        """Seconds by term, [N, terms], each with its factor.

        ``SHARED_TERMS`` keep their share of the step: they grow as the other terms do on average.
        """
        compute, collectives = self.compute.factor, self.collectives.factor
        if compute == collectives:
            factor = compute * self.step_time.factor
            return terms if factor == 1.0 else terms * factor
        shared = np.array([name in SHARED_TERMS for name in names])
        own = np.array([compute if name in COMPUTED_TERMS else collectives for name in names])
        before = terms[:, ~shared].sum(axis=1)
        after = terms[:, ~shared] @ own[~shared]
        mean = np.divide(after, before, out=np.ones_like(before), where=before > 0)
        factors = np.where(shared, mean[:, None], own)
        return np.asarray(terms * factors * self.step_time.factor)


def formula_only(topology: Topology, engine: str) -> Calibration:
    """No corrections; spreads from the published record of uncalibrated estimates.

    Step time within a factor of 2 on an accelerator whose peak is known (constant-efficiency
    models err by tens of per cent across families; PHYSICS.md: achievable share 51-87 %), 4 on CPU
    ranks that share cores. Memory within 10 % where there is no device to say more of
    (``predict.time.spread``).
    """
    is_cuda = topology.accelerator.device_type == "cuda"
    step_spread = 2.0 if is_cuda else 4.0
    return Calibration(
        accelerator=topology.accelerator.name,
        engine=engine,
        compute=Correction(spread=step_spread),
        collectives=Correction(spread=step_spread),
        step_time=Correction(spread=step_spread),
        memory=Correction(spread=1.1),
    )
