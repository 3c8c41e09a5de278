"""Documents packed into one sequence: a token sees its own one alone.

Positions count from each document's start, and transformers makes the mask from where they do.
"""

from collections.abc import Iterable

from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec
from meshfit.run.transformer import Stage


def separate_documents(stages: Iterable[Stage], layout: LayoutSpec, end_token: int) -> None:
    """Let a model see where documents end.

    Raises:
        InputError: the layout keeps some ranks from seeing the tokens that end them.
    """
    if layout.pp > 1 or layout.cp > 1:
        raise InputError(
            f"layout {layout.label}: packed documents run with pp=1 and cp=1: later stages, and "
            f"ranks with a part of a sequence, do not see where documents end"
        )
    for stage in stages:
        stage.end_token = end_token
