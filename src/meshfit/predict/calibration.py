"""Corrections learned from runs, and how wide the intervals are without them."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from meshfit.breakdown import Basis
from meshfit.cluster.topology import Topology
from meshfit.errors import InputError

SCHEMA_VERSION = 1


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
    """Corrections that hold on one accelerator under one engine."""

    accelerator: str
    engine: str
    compute: Correction
    collectives: Correction
    step_time: Correction
    memory: Correction

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        document = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        path.write_text(json.dumps(document, indent=2) + "\n")


def formula_only(topology: Topology, engine: str) -> Calibration:
    """No corrections; spreads from the published record of uncalibrated estimates.

    Step time within a factor of 2 on an accelerator whose peak is known (constant-efficiency
    models err by tens of per cent across families; PHYSICS.md: achievable share 51-87 %), 4 on CPU
    ranks that share cores. Memory within 10 %.
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


def load_calibration(path: Path) -> Calibration:
    """Read what ``Calibration.save`` wrote.

    Raises:
        InputError: the file is not there, not JSON, or of another schema.
    """
    try:
        document: dict[str, Any] = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"calibration {path}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise InputError(f"calibration {path} is not JSON: {error}") from error
    version = document.pop("schema_version", None) if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise InputError(
            f"calibration {path} has schema_version {version}; this meshfit reads {SCHEMA_VERSION}"
        )
    try:
        corrections = {
            name: Correction(**document.pop(name))
            for name in ("compute", "collectives", "step_time", "memory")
        }
        return Calibration(
            accelerator=document.pop("accelerator"),
            engine=document.pop("engine"),
            **corrections,
            **document,
        )
    except (KeyError, TypeError) as error:
        raise InputError(f"calibration {path} has other keys than expected: {error}") from error
