"""A real Slurm, for tests with the marker ``slurm``."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.submit.slurm.slurm_here import slurm_here, why_no_slurm


@pytest.fixture(scope="session")
def slurm() -> Iterator[Path]:
    """Its configuration file."""
    if (reason := why_no_slurm()) is not None:
        pytest.skip(reason)
    with slurm_here() as config:
        yield config
