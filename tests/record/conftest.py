"""A record to vary."""

from collections.abc import Callable

import pytest

from meshfit.mesh.spec import LayoutSpec
from meshfit.record.schema import Record

MakeRecord = Callable[..., Record]


@pytest.fixture
def make_record() -> MakeRecord:
    """A finished launch; any of its fields can be given."""

    def make(**changes: object) -> Record:
        values: dict[str, object] = {
            "plan_hash": "plan",
            "candidate": "tp=2",
            "repeat": 0,
            "purpose": "measure",
            "layout": LayoutSpec(tp=2, sp=True),
            "outcome": "ok",
            "started_at": "2026-01-02T03:04:05+00:00",
            "seconds": 12.5,
        }
        return Record(**(values | changes))

    return make
