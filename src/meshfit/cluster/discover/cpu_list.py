"""Lists of numbers as Linux writes them: ``0-3,8``."""

import re

_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


def cpu_list(text: str) -> tuple[int, ...] | None:
    """The numbers that ``text`` names, rising; None when it is not such a list."""
    numbers: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            return None
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def shown_list(numbers: tuple[int, ...]) -> str:
    """``0-3,8`` of 0, 1, 2, 3, 8."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
