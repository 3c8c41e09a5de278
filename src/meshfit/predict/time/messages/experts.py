"""Messages of expert parallelism: tokens to experts and back."""

from collections.abc import Iterator

from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedule import RankShape
from meshfit.predict.time.messages.message import Message, PassCounts, Size, message
from meshfit.predict.time.recompute import recomputed_share
from meshfit.workload.model import MoeSpec

BLOCKS_AROUND_EXPERTS = 2
"""Exchanges around the experts of a layer in one pass: dispatch and combine."""


def dispatched(moe: MoeSpec, group: LayoutGroup) -> Size:
    """Tokens of one micro-batch on one rank as its router sends them to experts, in the compute type
    (fp8 recipes cast behind the dispatch): each one to as many as it chooses, none dropped."""
    columns, width = group.columns, float(moe.expert_input_size or group.model.hidden_size)
    tokens, element = columns.tokens / columns.sequence_split, group.numerics.compute_bytes
    chosen = (float(moe.experts_per_token), "experts")
    return Size(((tokens, "tokens"), chosen, (width, ""), (element, "B")))


def expert_passes(group: LayoutGroup) -> PassCounts:
    """Passes over the experts of a layer in one micro-batch."""
    return PassCounts(forward=1.0, backward=1.0, again=recomputed_share(group))


def expert_messages(shape: RankShape, group: LayoutGroup) -> Iterator[Message]:
    """Dispatch and combine around the experts of every layer; with etp, its ranks see each other's
    tokens."""
    columns, c = group.columns, group.candidates
    for kind, count in shape.layers:
        if kind.moe is None or not columns.splits_experts.any():
            continue
        size = dispatched(kind.moe, group)
        passes = count * columns.micro_batches * expert_passes(group).total * columns.splits_experts
        what = "dispatch of tokens to their experts, and their return"
        times = BLOCKS_AROUND_EXPERTS * passes
        yield message("all_to_all", "ep", what, size, times=times, ranks=c.ep)
        for collective in ("all_gather", "reduce_scatter"):
            what = "tokens of the ranks that share an expert"
            yield message(collective, "etp", what, size.times(c.etp), times=passes, ranks=c.etp)
