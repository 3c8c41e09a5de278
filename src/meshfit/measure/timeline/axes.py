"""Which axis of the mesh a communication runs along, said where it is called.

A process group alone does not tell: under dp_shard=4 and ep=4 both axes are all ranks, and PyTorch
has one group for them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

WORLD = "world"
"""Axis of a collective over every rank."""

_axis: ContextVar[str | None] = ContextVar("axis", default=None)


@contextmanager
def along(axis: str) -> Iterator[None]:
    """Calls for communication inside run along ``axis``, whatever else their group is."""
    token = _axis.set(axis)
    try:
        yield
    finally:
        _axis.reset(token)


def named_axis() -> str | None:
    """The axis that calls made now run along; None where nobody has said."""
    return _axis.get()
