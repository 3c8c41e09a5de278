"""The figures of one row that are scored: what ``--json`` holds and every baseline gives too."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from meshfit.predict.verdict import Verdict
from meshfit.validate.predictions import RowPrediction
from meshfit.validate.scored import memory_kind


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Predicted figures of one row, None where not modelled.

    Attributes:
        allocated, reserved, device: peak in bytes of the rank whose memory the row prints; device is
            reserved with context and communicators.
        memory_low, memory_high: 80 % interval of the row's own kind of memory, in bytes.
        step_time, step_time_low, step_time_high: seconds an optimizer step.
        reason: why a figure is None.
    """

    id: str
    allocated: float | None = None
    reserved: float | None = None
    device: float | None = None
    memory_low: float | None = None
    memory_high: float | None = None
    step_time: float | None = None
    step_time_low: float | None = None
    step_time_high: float | None = None
    verdict: Verdict | None = None
    reason: str | None = None

    @property
    def is_modelled(self) -> bool:
        """Whether there is a figure of time or of memory."""
        return self.step_time is not None or self.allocated is not None

    def memory(self, kind: str | None) -> float | None:
        """Bytes of one kind of memory."""
        by_kind = {"allocated": self.allocated, "reserved": self.reserved, "device": self.device}
        return by_kind.get(kind or "")

    def as_json(self) -> dict[str, Any]:
        """Every key, as the tables' scorer reads them."""
        return asdict(self)


def figures_of(predicted: RowPrediction) -> Figures:
    """What is scored of one prediction."""
    if predicted.prediction is None:
        return Figures(id=predicted.row.id, reason=predicted.reason)
    step = predicted.prediction.step_time
    low, high = predicted.memory_interval(memory_kind(predicted.row)) or (None, None)
    return Figures(
        id=predicted.row.id,
        allocated=predicted.memory_of_kind("allocated"),
        reserved=predicted.memory_of_kind("reserved"),
        device=predicted.memory_of_kind("device"),
        memory_low=low,
        memory_high=high,
        step_time=step.middle,
        step_time_low=step.low,
        step_time_high=step.high,
        verdict=predicted.verdict,
    )


def figures_by_id(predictions: Iterable[RowPrediction]) -> Mapping[str, Figures]:
    """Row id -> its figures."""
    return {predicted.row.id: figures_of(predicted) for predicted in predictions}
