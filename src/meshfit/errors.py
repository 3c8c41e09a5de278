"""The exceptions meshfit raises, and the exit code each one ends a command with.

::

    MeshfitError
    ├── InputError           exit 2: the input is wrong; says the rule, the values and what would work
    ├── NothingFitsError     exit 1: the input is valid, but no layout meets it
    └── RunError             exit 3: a run failed
        └── NotInstalledError    the same, before it began: something it needs is not installed here
"""

import difflib
from collections.abc import Iterable


class MeshfitError(Exception):
    """Base of every error that meshfit raises on purpose.

    Attributes:
        exit_code: of the command that it ends.
        kind: its name in what ``--json`` prints of it.
    """

    exit_code = 3
    kind = "run"


class InputError(MeshfitError):
    """A person's input breaks a rule. The message names rule, values and what would work."""

    exit_code = 2
    kind = "input"


class NothingFitsError(MeshfitError):
    """The input is valid, but no layout satisfies it."""

    exit_code = 1
    kind = "nothing_fits"


class RunError(MeshfitError):
    """Something that was run failed."""


class NotInstalledError(RunError):
    """What is asked for cannot run here: a package or program that it needs is not installed. The
    message says how to install it."""

    kind = "not_installed"


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The entry of ``known`` that looks most like ``name``, or None when none is close."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else None


def shown(value: object, *, most: int = 60) -> str:
    """``value`` as a message quotes it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."
