"""What predictions of a job rest on."""

from dataclasses import dataclass, field

from meshfit.cluster.topology import Topology
from meshfit.predict.calibration import Calibration
from meshfit.predict.costs.collectives import MeasuredCurves
from meshfit.predict.costs.constants import TimeConstants, shipped_constants
from meshfit.profile import EngineProfile
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import TrainingSpec


@dataclass(frozen=True, kw_only=True)
class Basis:
    """What all candidates of one call share."""

    model: ModelSpec
    training: TrainingSpec
    topology: Topology
    profile: EngineProfile
    calibration: Calibration
    curves: MeasuredCurves | None = None
    constants: TimeConstants = field(default_factory=shipped_constants)

    @property
    def is_cuda(self) -> bool:
        return self.topology.accelerator.device_type == "cuda"
