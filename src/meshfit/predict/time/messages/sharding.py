"""Messages of sharded parameters: gathers of weights, scatters of their gradients."""

from collections.abc import Iterator

import numpy as np

from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedule import RankShape
from meshfit.predict.time.messages.message import Message, message
from meshfit.predict.time.messages.states import (
    ends_states,
    gathered_parameters,
    gathers_once,
    layer_states,
    present,
    reduced_gradients,
    sharings,
)


def sharding_messages(shape: RankShape, group: LayoutGroup) -> Iterator[Message]:
    """Gathers of sharded parameters and scatters of their gradients: layer by layer, and the root
    unit's. Stage 3 gathers layers again for their backward, with or without recomputation (their
    forward runs again between that gather and their backward)."""
    columns, m = group.columns, group.columns.micro_batches
    if not columns.shards_parameters.any():
        return
    forward = np.where(gathers_once(group), 1, m) * columns.shards_parameters
    again = m * columns.frees_after_forward * columns.shards_parameters
    scatters = np.where(columns.keeps_gradients, 1, m) * columns.shards_parameters
    units = [("a layer", layer_states(kind, group), n, again) for kind, n in shape.layers]
    root = ("embedding, head and final norm", ends_states(shape, group), 1, np.zeros(len(group)))
    for name, held, count, backward in (*units, root):
        for sharing in sharings(group):
            of = "experts of a layer" if sharing.axis == "edp" else name
            gathered = gathered_parameters(held, sharing, group)
            gathers = present(gathered, count * (forward + backward))
            yield message(
                "all_gather",
                sharing.axis,
                f"weights of {of}",
                gathered,
                times=gathers,
                ranks=sharing.shards,
            )
            reduced = reduced_gradients(held, sharing, group)
            times = present(reduced, count * scatters)
            yield message(
                "reduce_scatter",
                sharing.axis,
                f"gradients of {of}",
                reduced,
                times=times,
                ranks=sharing.shards,
            )
