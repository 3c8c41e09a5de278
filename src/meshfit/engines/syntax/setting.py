"""One option as a file sets it."""

import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from meshfit.errors import InputError, shown


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
        text = str(self.value)
        if self.value is True:
            raise InputError(
                f"line {self.line}: {self.name} has no value; a whole number is expected"
            )
        if re.fullmatch(r"-?[0-9][0-9_]{0,17}", text) is None:
            hint = "; write the number itself" if re.search(r"[$(]", text) else ""
            raise InputError(
                f"line {self.line}: {self.name} {shown(self.value)} is no whole number{hint}"
            )
        return int(text)

    def at_least(self, least: int) -> int:
        """The value as a whole number of at least ``least``.

        Raises:
            InputError: it is none.
        """
        value = self.whole()
        if value < least:
            raise InputError(
                f"line {self.line}: {self.name} {value} is not allowed; at least {least} is"
            )
        return value

    def number(self) -> float:
        """The value as a number.

        Raises:
            InputError: it is none.
        """
        try:
            value = math.nan if isinstance(self.value, bool) else float(self.value)
        except (TypeError, ValueError, OverflowError):
            value = math.nan
        if not math.isfinite(value):
            raise InputError(f"line {self.line}: {self.name} {shown(self.value)} is no number")
        return value

    def is_on(self) -> bool:
        """Whether a switch is on: a flag, or a truth value in whatever spelling."""
        return str(self.value).strip().lower() in ("true", "1", "yes", "on")


class Settings:
    """All options of a file by name; where one is set twice, the last holds, as engines have it."""

    def __init__(self, settings: list[Setting]) -> None:
        self.all = settings
        self._by_name = {setting.name: setting for setting in settings}

    @classmethod
    def filed(cls, settings: Iterable[tuple[str, Setting]]) -> "Settings":
        """Settings that are looked up by another name than the file calls them."""
        pairs = list(settings)
        found = cls([setting for _, setting in pairs])
        found._by_name = dict(pairs)
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def get(self, *names: str) -> Setting | None:
        """The setting of the first of ``names`` that is set."""
        return next((self._by_name[name] for name in names if name in self._by_name), None)

    def whole(self, *names: str, default: int | None = None) -> int | None:
        """The whole number that one of ``names`` is set to."""
        found = self.get(*names)
        return default if found is None else found.whole()

    def count(self, *names: str, default: int = 1, least: int = 1) -> int:
        """The whole number, at least ``least``, that one of ``names`` is set to.

        Raises:
            InputError: it is smaller, or no number.
        """
        found = self.get(*names)
        return default if found is None else found.at_least(least)

    def choice(self, name: str, allowed: Collection[str], default: str) -> str:
        """The one of ``allowed`` that ``name`` is set to.

        Raises:
            InputError: it is set to something else, which the engine refuses.
        """
        found = self.get(name)
        if found is None:
            return default
        if str(found.value) not in allowed:
            raise InputError(
                f"line {found.line}: {found.name} {shown(found.value)} is none of {', '.join(allowed)}"
            )
        return str(found.value)

    def predicted(self, name: str, allowed: Collection[str], default: str) -> str:
        """The one of ``allowed`` that ``name`` is set to.

        Raises:
            InputError: it is set to something else, which the engine may take and which is not predicted.
        """
        found = self.get(name)
        if found is None:
            return default
        if str(found.value) not in allowed:
            raise InputError(
                f"line {found.line}: {found.name} {shown(found.value)} is not predicted; "
                f"{', '.join(allowed)} {'is' if len(allowed) == 1 else 'are'}"
            )
        return str(found.value)

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
