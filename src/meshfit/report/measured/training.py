"""How a training run ended: what ``meshfit train`` shows."""

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from meshfit.report.parts import words


def train_view(document: dict[str, Any]) -> RenderableType:
    """The outcome, the checkpoints with what they took, and every restart with what it cost."""
    return Group(_headline(document), *map(Text, _facts(document)))


def _headline(document: dict[str, Any]) -> Text:
    layout = words.layout(document["layout"])
    if document["outcome"] == "ok":
        losses = document["losses"]
        return Text(f"{layout}: loss {losses[0]:.4f} -> {losses[-1]:.4f}", style="green")
    failure = document["failure"] or {}
    outcome = words.OUTCOMES.get(document["outcome"], document["outcome"])
    return Text(f"{layout}: {outcome}: {failure.get('message', '')}", style="red")


def _facts(document: dict[str, Any]) -> Iterator[str]:
    if document["load"] is not None:
        yield (
            f"resumed after {document['first_step']} steps; reading, checking and taking over the "
            f"checkpoint took {words.duration(document['load'])}"
        )
    for saved in document["checkpoints"]:
        yield (
            f"checkpoint after {saved['step']} steps: {words.size(saved['size_bytes'])}, training "
            f"stood still for {words.duration(saved['blocked_s'])}, good after "
            f"{words.duration(saved['written_s'])}"
        )
    for restart in document["restarts"]:
        yield (
            f"failed at step {restart['at_step']} ({restart['message']}); resumed after "
            f"{restart['resumed_step']} steps: {restart['lost_steps']} lost "
            f"({words.duration(restart['lost'])}), first step {words.duration(restart['restart'])} "
            f"after its start"
        )
