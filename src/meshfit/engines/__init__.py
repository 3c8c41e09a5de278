"""The engines meshfit knows: one folder each, found here by name."""

from meshfit.engines.native.profile import NATIVE
from meshfit.errors import InputError, nearest_name
from meshfit.profile import EngineProfile

PROFILES: dict[str, EngineProfile] = {NATIVE.name: NATIVE}


def engine_profile(name: str) -> EngineProfile:
    """The profile of an engine.

    Raises:
        InputError: no engine of that name.
    """
    if name not in PROFILES:
        nearest = nearest_name(name, PROFILES)
        hint = f"did you mean {nearest!r}?" if nearest else f"known: {', '.join(PROFILES)}"
        raise InputError(f"unknown engine {name!r}; {hint}")
    return PROFILES[name]
