"""Hugging Face's Trainer on DeepSpeed ZeRO: no tensor or pipeline parallelism, no padding."""

from meshfit.validate.frameworks.assemble import Conventions, assemble
from meshfit.validate.profiles import DEEPSPEED_TRAINER
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import TruthRow


def read(row: TruthRow) -> RowJob:
    """The job of a row.

    Raises:
        NotModelledError: something that is needed is not stated or not known.
    """
    return assemble(row, _CONVENTIONS)


_CONVENTIONS = Conventions(profile=DEEPSPEED_TRAINER, gradient_bytes=2)
