"""The options that a layout decides, by engine, and how two layouts differ in them."""

from collections.abc import Callable

from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec

OptionValue = int | float | str | bool | None
Options = dict[str, OptionValue]
"""Option -> value, in the order that a person reads them; None where it is left out."""

Writer = Callable[[LayoutSpec, int], Options]
"""From a layout and the sequences of one optimizer step."""


def require_whole_checkpoints(engine: str, layout: LayoutSpec) -> None:
    """
    Raises:
        InputError: a checkpoint is of several layers, which ``engine`` has no option for.
    """
    if layout.recompute == "full" and layout.recompute_layers > 1:
        raise InputError(
            f"{engine} recomputes layer by layer: recompute_layers={layout.recompute_layers} is no option "
            f"of it; write 1"
        )


def require_no_sequence_parallel(engine: str, layout: LayoutSpec) -> None:
    """
    Raises:
        InputError: the sequence is shared out between tensor-parallel blocks, which ``engine`` does not do.
    """
    if layout.sp:
        raise InputError(
            f"{engine} has no sequence parallelism beside tp={layout.tp}; write sp=false"
        )


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
