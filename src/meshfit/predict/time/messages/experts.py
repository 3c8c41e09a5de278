"""Messages of expert parallelism: tokens to experts and back."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.costs.collectives import Collective
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedule import RankShape
from meshfit.predict.time.messages.message import Message, PassCounts, Size, message
from meshfit.predict.time.messages.tensor import block_gathers, block_sums, is_sequence_parallel
from meshfit.predict.time.recompute import recomputed_share
from meshfit.workload.model import LayerSpec, MoeSpec

FloatArray = NDArray[np.float64]

BLOCKS_AROUND_EXPERTS = 2
"""Exchanges around the experts of a layer in one pass: dispatch and combine."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One collective around the experts of a layer, so often in each pass of a micro-batch.

    Attributes:
        by_load: whether the fullest rank has more of it than an even share.
    """

    collective: Collective
    axis: Literal["ep", "etp"]
    what: str
    size: Size
    passes: PassCounts
    by_load: bool


def expert_exchanges(kind: LayerSpec, group: LayoutGroup) -> Iterator[Exchange]:
    """Around the experts of a layer of this kind, where there is expert parallelism.

    Left out are the choices and their weights that go with tokens: a few numbers beside a hidden
    state.
    """
    if kind.moe is None or not group.columns.splits_experts.any():
        return
    copies, once = _dispatched(kind.moe, group), _expert_passes(group)
    yield Exchange(
        collective="all_to_all",
        axis="ep",
        what="dispatch of tokens to their experts, and their return",
        size=copies,
        passes=once.times(BLOCKS_AROUND_EXPERTS),
        by_load=True,
    )
    if group.profile.gathers_before_dispatch:
        yield from _around_dispatch(kind.moe, group)
        return
    around: tuple[Collective, ...] = ("all_gather", "reduce_scatter")
    for collective in around:
        yield Exchange(
            collective=collective,
            axis="etp",
            what="tokens of the ranks that share an expert",
            size=copies.times(group.candidates.etp),
            passes=once,
            by_load=True,
        )


def expert_messages(shape: RankShape, group: LayoutGroup) -> Iterator[Message]:
    """The same of all layers of a rank."""
    columns, c = group.columns, group.candidates
    for kind, count in shape.layers:
        for one in expert_exchanges(kind, group):
            times = count * columns.micro_batches * one.passes.total * columns.splits_experts
            ranks = c.ep if one.axis == "ep" else c.etp
            yield message(one.collective, one.axis, one.what, one.size, times=times, ranks=ranks)


def _dispatched(moe: MoeSpec, group: LayoutGroup) -> Size:
    """Tokens of one micro-batch as one rank sends them to experts, in the compute type (fp8 recipes
    cast behind the dispatch): each one to as many as it chooses, none dropped. They are those of its
    own router, or of all ranks that share an expert, where these have gathered them before."""
    columns = group.columns
    before = group.profile.gathers_before_dispatch
    split = columns.dispatch_split if before else columns.sequence_split
    chosen = (float(moe.experts_per_token), "experts")
    tokens, *rest = _hidden(moe, group, columns.tokens / split).factors
    return Size((tokens, chosen, *rest))


def _hidden(moe: MoeSpec, group: LayoutGroup, tokens: FloatArray) -> Size:
    width = float(moe.expert_input_size or group.model.hidden_size)
    return Size(((tokens, "tokens"), (width, ""), (group.numerics.compute_bytes, "B")))


def _expert_passes(group: LayoutGroup) -> PassCounts:
    """Passes over the experts of a layer in one micro-batch."""
    return PassCounts(forward=1.0, backward=1.0, again=recomputed_share(group))


def _around_dispatch(moe: MoeSpec, group: LayoutGroup) -> Iterator[Exchange]:
    """Ranks that share an expert gather their tokens before dispatch and add up outputs after combine,
    once a token whatever it chooses; backward the other way round. Without sequence parallelism all
    have the same tokens, and only sums are left."""
    columns, one = group.columns, np.ones(len(group))
    size = _hidden(moe, group, columns.tokens / columns.dispatch_split)
    is_sequence = is_sequence_parallel(group).astype(float)
    sums = block_sums(one, group)
    around: dict[Collective, PassCounts] = {
        "all_gather": block_gathers(one, group).times(is_sequence),
        "reduce_scatter": sums.times(is_sequence),
        "all_reduce": sums.times(1.0 - is_sequence),
    }
    for collective, passes in around.items():
        yield Exchange(
            collective=collective,
            axis="etp",
            what="tokens of the ranks that share an expert, before dispatch and after combine",
            size=size,
            passes=passes,
            by_load=False,
        )
