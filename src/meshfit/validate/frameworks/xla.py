"""MaxText and PaxML: XLA's sharding of parameters and gradients, as FSDP's.

Where a row does not say, layers are recomputed in full (MaxText's ``remat_policy``). Gradients are
summed where the matmul that makes them ends, in its type.
"""

from meshfit.validate.divisions import Defaults
from meshfit.validate.frameworks.assemble import Conventions, assemble
from meshfit.validate.planner_choice import with_planned_shards
from meshfit.validate.profiles import XLA
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import TruthRow


def read(row: TruthRow) -> RowJob:
    """The job of a row; what FSDP divides and what is replicated is a person's choice, so that the
    planner chooses where a row does not say.

    Raises:
        NotModelledError: something that is needed is not stated or not known.
    """
    job = assemble(row, _CONVENTIONS)
    is_chosen = job.layout.zero_stage == 3 and not row.text("dp_shard")
    return with_planned_shards(job) if is_chosen else job


_CONVENTIONS = Conventions(
    profile=XLA, defaults=Defaults(recompute="full", zero_stage=3), gradient_bytes=2
)
