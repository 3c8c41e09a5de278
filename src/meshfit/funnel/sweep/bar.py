"""The bar that a terminal shows of launches: what goes on, how far it is, how long is left."""

from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from meshfit.record.heartbeat import Heartbeat


def launch_bar(console: Console) -> Progress:
    """A bar whose task has a field ``left``, gone when it ends; without a terminal it shows nothing."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def slowest_rank(beats: Mapping[int, Heartbeat]) -> Heartbeat:
    """The last heartbeat of the rank that is least far, the first of equals."""
    return min(beats.values(), key=lambda beat: (beat.step, beat.rank))
