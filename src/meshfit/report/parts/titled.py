"""The look of a table in the terminal."""

from rich import box
from rich.table import Table


def titled_table(title: str, caption: str | None = None) -> Table:
    """A table without columns yet, its title above and what explains it below, both on the left."""
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        caption=caption,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
