"""InternEvo: Megatron-like tensor and pipeline parallelism without sequence parallelism, ZeRO-1
over groups, flash attention. ``gbs`` counts packed sequences of ``seq_len`` tokens."""

from meshfit.validate.divisions import Defaults
from meshfit.validate.frameworks.assemble import Conventions, assemble
from meshfit.validate.profiles import INTERNEVO
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import TruthRow


def read(row: TruthRow) -> RowJob:
    """The job of a row.

    Raises:
        NotModelledError: something that is needed is not stated or not known.
    """
    return assemble(row, _CONVENTIONS)


_CONVENTIONS = Conventions(profile=INTERNEVO, defaults=Defaults(zero_stage=1), gradient_bytes=2)
