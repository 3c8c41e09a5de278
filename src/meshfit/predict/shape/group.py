"""Layouts that share a pipeline and a way of computing: the unit in which tier 1 works."""

from dataclasses import dataclass
from functools import cached_property

from meshfit.cluster.topology import AcceleratorSpec
from meshfit.mesh.candidates import Candidates
from meshfit.predict.shape.columns import StepColumns
from meshfit.predict.shape.layer_basis import LayerBasis, Numerics, layer_basis
from meshfit.predict.shape.schedule import Pipeline
from meshfit.profile import EngineProfile
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import TrainingSpec


@dataclass(frozen=True, kw_only=True)
class LayoutGroup:
    """N layouts of one job, and what they have in common.

    ``columns`` are derived from ``candidates``; both have N rows. ``accelerator`` decides kernels and
    workspaces; None: none is named.
    """

    model: ModelSpec
    training: TrainingSpec
    profile: EngineProfile
    pipeline: Pipeline
    numerics: Numerics
    candidates: Candidates
    columns: StepColumns
    accelerator: AcceleratorSpec | None = None

    @cached_property
    def layer_basis(self) -> LayerBasis:
        """What decides which tensors a layer keeps."""
        on_cpu = self.accelerator is not None and self.accelerator.device_type == "cpu"
        return layer_basis(self.model, self.training, self.profile, self.numerics, on_cpu=on_cpu)

    def __len__(self) -> int:
        return len(self.columns)
