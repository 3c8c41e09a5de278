"""Documents packed into one sequence: a token sees its own one alone.

Positions count from each document's start, and transformers makes the mask from where they do.
"""

from collections.abc import Iterable

from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec
from meshfit.run.context.refusals import MASKED_METHODS
from meshfit.run.model.transformer import Stage


def separate_documents(stages: Iterable[Stage], layout: LayoutSpec, end_token: int) -> None:
    """Let a model see where documents end.

    Raises:
        InputError: the layout keeps some ranks from seeing the tokens that end them.
    """
    if layout.pp > 1:
        raise InputError(
            f"layout {layout.label}: packed documents run with pp=1: later stages do not see where "
            "documents end"
        )
    if layout.cp > 1 and layout.cp_method not in MASKED_METHODS:
        raise InputError(
            f"layout {layout.label}: packed documents do not go round a ring, whose blocks are causal "
            f"or whole; use {' or '.join(f'cp_method={name}' for name in MASKED_METHODS)}"
        )
    for stage in stages:
        stage.end_token = end_token
