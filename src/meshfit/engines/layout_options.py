"""The options that a layout decides, by engine, and how two layouts differ in them."""

from collections.abc import Callable

from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec

OptionValue = int | str | bool | None
Options = dict[str, OptionValue]
"""Option -> value, in the order that a person reads them; None where it is left out."""

Writer = Callable[[LayoutSpec, int], Options]
"""From a layout and the sequences of one optimizer step."""


def changed_options(
    write: Writer, before: LayoutSpec, after: LayoutSpec, global_batch_size: int
) -> Options:
    """What has to be set otherwise to come from one layout to the other, for the same global batch.

    Raises:
        InputError: the engine has no option for a part of one of them.
    """
    old, new = write(before, global_batch_size), write(after, global_batch_size)
    return {name: value for name, value in new.items() if value != old.get(name)}


def can_write(write: Writer, layout: LayoutSpec, global_batch_size: int) -> bool:
    """Whether the engine has options for all of a layout."""
    try:
        write(layout, global_batch_size)
    except InputError:
        return False
    return True
