"""Messages between ranks that hold the same parameters: gradients, and updates of a sharded optimizer."""

from collections.abc import Iterator

import numpy as np

from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.held import Held
from meshfit.predict.shape.schedule import RankShape
from meshfit.predict.time.messages.message import Message, message
from meshfit.predict.time.messages.states import (
    Sharing,
    present,
    rank_states,
    reduced_gradients,
    scatters_whole_gradients,
    shards_beside_whole_parameters,
    sharings,
    updated_parameters,
    whole_gradient_reductions,
)


def replication_messages(shape: RankShape, group: LayoutGroup) -> Iterator[Message]:
    """Gradients over replicas once a step; where whole parameters have a sharded optimizer, also
    gradients to their shards and updates back."""
    held = rank_states(shape, group)
    for sharing in sharings(group):
        yield from _sums_over_replicas(held, sharing, group)
        if shards_beside_whole_parameters(group).any():
            yield from _whole_parameter_messages(held, sharing, group)


def _sums_over_replicas(held: Held, sharing: Sharing, group: LayoutGroup) -> Iterator[Message]:
    columns, beside = group.columns, shards_beside_whole_parameters(group)
    scatters = scatters_whole_gradients(group)
    sharded = columns.shards_parameters | (beside & scatters)
    shards = np.where(sharded, sharing.shards, 1)
    size = reduced_gradients(held, sharing, group, shards)
    times = present(size, np.where(beside & (not scatters), 0, 1))
    what = "gradients of experts" if sharing.axis == "edp" else "gradients"
    yield message(
        "all_reduce", sharing.replica_axis, what, size, times=times, ranks=sharing.replicas
    )


def _whole_parameter_messages(
    held: Held, sharing: Sharing, group: LayoutGroup
) -> Iterator[Message]:
    beside, scatters = shards_beside_whole_parameters(group), scatters_whole_gradients(group)
    collectives = ("reduce_scatter", "all_gather") if scatters else ("all_reduce", "broadcast")
    everyone = sharing.shards * (1 if scatters else sharing.replicas)
    reduced = reduced_gradients(held, sharing, group)
    updated = updated_parameters(held, sharing, group)
    reductions = beside * whole_gradient_reductions(group)
    for collective, what, size, times, ranks in (
        (collectives[0], "gradients", reduced, reductions, everyone),
        (collectives[1], "updated weights", updated, beside, sharing.shards),
    ):
        yield message(collective, sharing.axis, what, size, times=present(size, times), ranks=ranks)
