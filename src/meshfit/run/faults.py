"""Faults on purpose, so that tests (and users) see how a launch behaves when one strikes.

The environment variable ``MESHFIT_FAULT`` holds faults separated by ``;``, each a kind and where
it strikes, for example ``kill:rank=1:step=2`` or ``slow:rank=0:seconds=0.5``. What is left out
matches everything: no ``step`` means every step.

======== ==============================================================================
kind     what happens
======== ==============================================================================
kill     the rank gets SIGKILL, as from the kernel's out-of-memory killer
raise    the rank raises ``InjectedFault``
exit     the rank ends at once with exit code ``code`` (7 if not given)
hang     the rank stands still for ever, before the step's first collective
stall    the rank is stopped (SIGSTOP) inside the step's next collective
oom      the rank asks its CPU allocator for 1 PiB
slow     the rank sleeps for ``seconds`` (0.1 if not given)
nan      ``fault_at`` returns True, and the worker makes its loss NaN
======== ==============================================================================

Where: ``rank``, ``step``, ``phase``, and ``candidate`` (as in the request; the launcher passes it
on in ``MESHFIT_CANDIDATE``).
"""

import os
import signal
import time
from dataclasses import dataclass
from functools import cache
from typing import Any

from meshfit.errors import InputError, nearest_name
from meshfit.record.variables import CANDIDATE_VARIABLE

FAULT_VARIABLE = "MESHFIT_FAULT"

_KINDS = ("kill", "raise", "exit", "hang", "stall", "oom", "slow", "nan")
_KEYS = {
    "rank": int, "step": int, "phase": str, "candidate": str, "code": int, "seconds": float,
}  # fmt: skip
_OOM_BYTES = 2**50  # beyond a 47-bit address space, so refused even where memory is overcommitted


class InjectedFault(RuntimeError):  # noqa: N818  (an error only by order)
    """What ``raise`` raises."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault and where it strikes; None matches everything."""

    kind: str
    rank: int | None = None
    step: int | None = None
    phase: str | None = None
    candidate: str | None = None
    code: int = 7
    seconds: float = 0.1

    def strikes(self, *, rank: int, phase: str, step: int, candidate: str | None) -> bool:
        """Whether this is the place."""
        return (
            self.rank in (None, rank)
            and self.step in (None, step)
            and self.phase in (None, phase)
            and self.candidate in (None, candidate)
        )


def fault_at(rank: int, phase: str, step: int) -> bool:
    """Lets the faults asked for at this place happen; a worker calls it once a step.

    Returns:
        Whether the worker shall make its loss NaN here.
    """
    text = os.environ.get(FAULT_VARIABLE)
    if not text:
        return False
    candidate = os.environ.get(CANDIDATE_VARIABLE)
    here = [
        fault
        for fault in parse_faults(text)
        if fault.strikes(rank=rank, phase=phase, step=step, candidate=candidate)
    ]
    for fault in here:
        _happen(fault, f"rank {rank}, phase {phase}, step {step}")
    return any(fault.kind == "nan" for fault in here)


@cache
def parse_faults(text: str) -> tuple[Fault, ...]:
    """The faults that ``MESHFIT_FAULT`` asks for.

    Raises:
        InputError: unknown kind or key, or a value of the wrong type.
    """
    return tuple(_parse(part.strip()) for part in text.split(";") if part.strip())


def _parse(text: str) -> Fault:
    kind, *settings = text.split(":")
    if kind not in _KINDS:
        raise InputError(_unknown("kind", kind, _KINDS))
    values: dict[str, Any] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in _KEYS:
            raise InputError(_unknown("key", key, tuple(_KEYS)))
        try:
            values[key] = _KEYS[key](value)
        except ValueError:
            expected = "a whole number" if _KEYS[key] is int else "a number"
            raise InputError(f"{FAULT_VARIABLE}: {key} must be {expected}, not {value!r}") from None
    return Fault(kind=kind, **values)


def _unknown(what: str, name: str, known: tuple[str, ...]) -> str:
    nearest = nearest_name(name, known)
    hint = f"did you mean {nearest!r}?" if nearest else f"known: {', '.join(known)}"
    return f"{FAULT_VARIABLE}: unknown {what} {name!r}; {hint}"


def _happen(fault: Fault, place: str) -> None:
    match fault.kind:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise InjectedFault(f"fault injected at {place}")
        case "exit":
            os._exit(fault.code)
        case "hang":
            while True:
                time.sleep(3600)
        case "stall":
            _stall_in_next_collective()
        case "oom":
            import torch  # noqa: PLC0415  (the rest of this file works without)

            torch.empty(_OOM_BYTES, dtype=torch.uint8)
        case "slow":
            time.sleep(fault.seconds)


def _stall_in_next_collective() -> None:
    """From now on, the first call for communication stops this process as soon as it is made."""
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415

    from meshfit.measure.timeline.calls import is_call  # noqa: PLC0415

    class StopsInCalls(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            if is_call(func):
                os.kill(os.getpid(), signal.SIGSTOP)
            return result

    StopsInCalls().__enter__()
