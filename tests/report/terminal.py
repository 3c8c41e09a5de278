"""What a view looks like on a terminal without colours."""

from rich.console import Console, RenderableType


def shown(renderable: RenderableType, width: int = 100) -> str:
    """The text of ``renderable`` on so many columns."""
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()
