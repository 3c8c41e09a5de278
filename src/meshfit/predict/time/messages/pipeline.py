"""Messages between the stages of a pipeline."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedule import RankShape
from meshfit.predict.time.messages.message import Message, Size, message
from meshfit.predict.time.messages.tensor import hidden, is_sequence_parallel
from meshfit.workload.counts import embedding_parameters

BoolArray = NDArray[np.bool_]


def boundary(group: LayoutGroup) -> Size:
    """Hidden states of one micro-batch as they pass from stage to stage, of one rank."""
    columns = group.columns
    split = columns.tp if group.profile.scatters_pipeline_exchange else columns.sequence_split
    width, element = float(group.model.hidden_size), group.numerics.residual_bytes
    return Size(((columns.tokens / split, "tokens"), (width, ""), (element, "B")))


def gathers_boundary(group: LayoutGroup) -> BoolArray:
    """Whether tensor-parallel ranks put together what each received a share of: where they send
    shares though all of them need the whole (2104.04473, section 4.1)."""
    return np.asarray(group.profile.scatters_pipeline_exchange & ~is_sequence_parallel(group))


def received_hidden(group: LayoutGroup) -> Size:
    """What they put together."""
    return hidden(group, group.numerics.residual_bytes)


def tied_gradient(group: LayoutGroup) -> Size:
    """Gradient of an embedding that the first and the last stage both hold."""
    held = embedding_parameters(group.model) / group.columns.tp
    return Size(((held, "parameters"), (group.training.precision.gradient_bytes, "B")))


def holds_tied_copy(shape: RankShape, group: LayoutGroup) -> bool:
    """Whether another stage holds a copy of this one's embedding."""
    ends = shape.chunks[0].has_embedding, shape.chunks[-1].has_head
    return group.model.tie_word_embeddings and sum(ends) == 1


def pipeline_messages(shape: RankShape, group: LayoutGroup) -> Iterator[Message]:
    """Hidden states received and their gradients, once a micro-batch at each cut; the gradient of a
    tied embedding once."""
    columns, received = group.columns, group.pipeline.receives(shape.rank)
    times = columns.micro_batches * received
    what = "hidden states to the next stage, gradients to the one before"
    yield message("send_recv", "pp", what, boundary(group), times=times, ranks=columns.pp)
    if received:
        what, gathered = "shares of what a stage received", times * gathers_boundary(group)
        yield message(
            "all_gather", "tp", what, received_hidden(group), times=gathered, ranks=columns.tp
        )
    if holds_tied_copy(shape, group):
        what = "gradient of the tied embedding, held on two stages"
        two = np.minimum(columns.pp, 2)
        yield message(
            "all_reduce", "pp", what, tied_gradient(group), times=np.ones(len(group)), ranks=two
        )
