"""What was run in one row, in the planner's own terms."""

from dataclasses import dataclass
from typing import Literal

from meshfit.cluster.topology import Topology
from meshfit.mesh.spec import LayoutSpec
from meshfit.profile import EngineProfile
from meshfit.validate.rows import TruthRow
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import TrainingSpec


@dataclass(frozen=True, kw_only=True)
class RowJob:
    """One row as a job.

    Attributes:
        memory_of: the rank whose memory was printed: the fullest, or the last global one.
        assumed: what the source does not state -> what was taken instead, and whose default it is.
    """

    row: TruthRow
    model: ModelSpec
    training: TrainingSpec
    layout: LayoutSpec
    profile: EngineProfile
    topology: Topology
    memory_of: Literal["fullest", "last"] = "fullest"
    assumed: tuple[str, ...] = ()
