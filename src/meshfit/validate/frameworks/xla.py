"""MaxText and PaxML: XLA's sharding of parameters and gradients, as FSDP's.

Where a row does not say, layers are recomputed in full (MaxText's ``remat_policy``). Gradients are
summed where the matmul that makes them ends, in its type.
"""

from meshfit.validate.divisions import Defaults
from meshfit.validate.frameworks.assemble import Conventions, assemble
from meshfit.validate.profiles import XLA
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import NotModelledError, TruthRow


def read(row: TruthRow) -> RowJob:
    """The job of a row.

    Raises:
        NotModelledError: something that is needed is not stated or not known; what FSDP divides and
            what is replicated is a person's choice here, so that there is no default.
    """
    if not row.text("dp_shard"):
        raise NotModelledError("not stated: dp_shard")
    return assemble(row, _CONVENTIONS)


_CONVENTIONS = Conventions(
    profile=XLA, defaults=Defaults(recompute="full", zero_stage=3), gradient_bytes=2
)
