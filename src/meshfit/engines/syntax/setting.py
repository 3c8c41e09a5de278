"""One option as a file sets it."""

from dataclasses import dataclass
from typing import Any

from meshfit.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Setting:
    """An option, by the name that the file calls it, and what it is set to.

    Attributes:
        value: as the file's form has it: text of a command line, a YAML or TOML value; True for a
            flag.
        line: where it stands, from 1.
    """

    name: str
    value: Any
    line: int

    def whole(self) -> int:
        """The value as a whole number.

        Raises:
            InputError: it is none.
        """
        text = str(self.value).replace("_", "")
        if isinstance(self.value, bool) or not text.lstrip("-").isdigit() or len(text) > 18:
            raise InputError(f"line {self.line}: {self.name} {self.value!r} is no whole number")
        return int(text)

    def number(self) -> float:
        """The value as a number.

        Raises:
            InputError: it is none.
        """
        try:
            return float(self.value)
        except (TypeError, ValueError):
            raise InputError(f"line {self.line}: {self.name} {self.value!r} is no number") from None

    def is_on(self) -> bool:
        """Whether a switch is on: a flag, or a truth value in whatever spelling."""
        return str(self.value).strip().lower() in ("true", "1", "yes", "on")


class Settings:
    """All options of a file by name; where one is set twice, the last holds, as engines have it."""

    def __init__(self, settings: list[Setting]) -> None:
        self.all = settings
        self._by_name = {setting.name: setting for setting in settings}

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def get(self, *names: str) -> Setting | None:
        """The setting of the first of ``names`` that is set."""
        return next((self._by_name[name] for name in names if name in self._by_name), None)

    def whole(self, *names: str, default: int | None = None) -> int | None:
        """The whole number that one of ``names`` is set to."""
        found = self.get(*names)
        return default if found is None else found.whole()

    def number(self, *names: str, default: float | None = None) -> float | None:
        """The number that one of ``names`` is set to."""
        found = self.get(*names)
        return default if found is None else found.number()

    def text(self, *names: str, default: str = "") -> str:
        """The text that one of ``names`` is set to."""
        found = self.get(*names)
        return default if found is None else str(found.value)

    def is_on(self, *names: str, default: bool = False) -> bool:
        """Whether the switch of one of ``names`` is on."""
        found = self.get(*names)
        return default if found is None else found.is_on()
