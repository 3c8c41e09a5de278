"""What ``check --json`` and other commands say of a broken rule."""

from typing import Any, NotRequired, TypedDict


class ViolationDocument(TypedDict):
    """One broken rule, as ``check --json`` lists it."""

    rule: str
    message: str
    values: dict[str, Any]
    nearest: NotRequired[Any]
    option: NotRequired[str | None]
