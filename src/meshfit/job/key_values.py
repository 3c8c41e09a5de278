"""Options that hold several values: ``tp=4,pp=2``."""

from meshfit.errors import InputError


def key_values(text: str, option: str, example: str) -> dict[str, str]:
    """The ``key=value`` pairs of an option, apart by commas.

    Raises:
        InputError: one is no pair, or a key is there twice.
    """
    keys: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"{option}: {pair!r} is not key=value; write it like {example}")
        if key.strip() in keys:
            raise InputError(f"{option}: {key.strip()!r} is there twice; give one value")
        keys[key.strip()] = value.strip()
    return keys
