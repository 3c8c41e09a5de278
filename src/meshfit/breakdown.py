"""The memory and time breakdowns that prediction, dry run and measurement share.

One published key list serves all three, so that comparing two of them is a subtraction.
"""

from dataclasses import dataclass, field, fields
from typing import Literal

Basis = Literal["measured_here", "measured_node_type", "formula"]
"""What a number rests on, from the most to the least trusted."""


@dataclass(frozen=True, kw_only=True)
class MemoryBreakdown:
    """Training memory of one rank at its peak, by category, in bytes.

    ``allocated`` is the sum of the categories; ``reserved`` adds what the allocator holds beyond
    it, and ``context`` is what the driver and the communicators take outside the allocator. The
    last two are None where they do not exist (CPU) or could not be had. ``host`` is what offloading
    takes of the host's memory for this rank, None without.
    """

    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    logits_and_loss: int = 0
    temporary: int = 0
    communication: int = 0
    unattributed: int = 0
    reserved: int | None = None
    context: int | None = None
    host: int | None = None

    @property
    def allocated(self) -> int:
        """Sum of the categories in bytes."""
        return sum(getattr(self, name) for name in MEMORY_CATEGORIES)

    @property
    def total(self) -> int:
        """Bytes to hold against the device: reserved (else allocated) plus context."""
        held = self.allocated if self.reserved is None else self.reserved
        return held + (self.context or 0)

    def as_json(self) -> dict[str, int | None]:
        """The published keys: ``total``, one key a category, ``allocated``, ``reserved``, ``context``."""
        document: dict[str, int | None] = {"total": self.total}
        document |= {name: getattr(self, name) for name in MEMORY_CATEGORIES}
        document |= {
            "allocated": self.allocated,
            "reserved": self.reserved,
            "context": self.context,
        }
        if self.host is not None:
            document["host"] = self.host
        return document


MEMORY_CATEGORIES: tuple[str, ...] = tuple(
    f.name for f in fields(MemoryBreakdown) if f.name not in ("reserved", "context", "host")
)


@dataclass(frozen=True, kw_only=True)
class TimeBreakdown:
    """One optimizer step on the critical path, in seconds by term.

    ``exposed`` is communication that no computation hides, keyed ``"COLLECTIVE.AXIS"``
    (for example ``"all_gather.dp_shard"``). None means the term was not obtained.
    """

    compute: float | None = None
    bubble: float | None = None
    recompute: float | None = None
    optimizer: float | None = None
    input_wait: float | None = None
    checkpoint: float | None = None
    other: float | None = None
    exposed: dict[str, float] = field(default_factory=dict)

    @property
    def step(self) -> float:
        """Sum of the terms that were obtained, in seconds."""
        own: list[float | None] = [getattr(self, name) for name in TIME_TERMS]
        return sum(term for term in own if term is not None) + sum(self.exposed.values())

    def as_json(self) -> dict[str, float | None]:
        """The published keys: ``step``, one key a term, ``exposed.COLLECTIVE.AXIS``."""
        document: dict[str, float | None] = {"step": self.step}
        document |= {name: getattr(self, name) for name in TIME_TERMS}
        document |= {f"exposed.{name}": seconds for name, seconds in self.exposed.items()}
        return document


TIME_TERMS: tuple[str, ...] = tuple(f.name for f in fields(TimeBreakdown) if f.name != "exposed")


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value with the range it is believed to lie in, and what that belief rests on."""

    low: float
    middle: float
    high: float
    basis: Basis = "formula"

    def overlaps(self, other: "Interval") -> bool:
        """Whether the two ranges share a point."""
        return self.low <= other.high and other.low <= self.high

    def as_json(self) -> dict[str, float | str]:
        return {"low": self.low, "middle": self.middle, "high": self.high, "basis": self.basis}


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What was expected of one layout before it ran.

    ``memory`` is that of the stage with the highest total; ``memory_total`` (bytes) and
    ``step_time`` (seconds) carry the intervals; ``binding`` names the term that decides.
    """

    memory: MemoryBreakdown
    time: TimeBreakdown
    memory_total: Interval
    step_time: Interval
    tokens_per_s: float
    binding: str
    profile: str

    def as_json(self) -> dict[str, object]:
        return {
            "memory": self.memory.as_json(),
            "time": self.time.as_json(),
            "interval": {
                "memory": self.memory_total.as_json(),
                "step_time": self.step_time.as_json(),
            },
            "tokens_per_s": self.tokens_per_s,
            "binding": self.binding,
            "profile": self.profile,
        }
