"""What each rank of one layout sends in one optimizer step, in words: ``predict.time.messages`` of
a group of one, for any kind of model."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from meshfit.predict.costs.collectives import Collective
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedule import RankShape
from meshfit.predict.time.messages.message import Message
from meshfit.predict.time.messages.ranks import rank_messages


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Equal messages of one pipeline rank.

    Attributes:
        axis: mesh axis, ``ep``, ``etp`` or ``edp`` along whose ranks it goes.
        term: of a step's time that holds what shows of it.
        what: what is sent, in words.
        size: the whole buffer of one message as a product; share: of it that each rank sends.
        sent_bytes: by each rank in a step.
        times: in one optimizer step.
    """

    axis: str
    collective: Collective
    term: str
    what: str
    size: str
    share: str
    sent_bytes: float
    times: int

    @property
    def formula(self) -> str:
        """``sent_bytes`` as a product."""
        return " x ".join(part for part in (f"{self.times:,}", self.share, self.size) if part)

    def also(self, other: "Exchange") -> "Exchange":
        """Both, of the same size."""
        return replace(
            self,
            times=self.times + other.times,
            sent_bytes=self.sent_bytes + other.sent_bytes,
        )


def rank_exchanges(group: LayoutGroup) -> Iterator[tuple[Exchange, ...]]:
    """Everything that each pipeline rank sends, rank by rank; nothing where it is alone on an axis."""
    for shape in group.pipeline.ranks:
        messages = rank_messages(_with_encoder(shape, group), group)
        found = (_exchange(message) for message in messages)
        yield tuple(one for one in found if one.sent_bytes > 0)


def _with_encoder(shape: RankShape, group: LayoutGroup) -> RankShape:
    """An encoder lies on the first rank."""
    if not shape.chunks[0].has_embedding or not group.model.encoder:
        return shape
    first, *others = shape.chunks
    layers = (*Counter(group.model.encoder).items(), *first.layers)
    return replace(shape, chunks=(replace(first, layers=layers), *others))


def _exchange(message: Message) -> Exchange:
    return Exchange(
        axis=message.axis,
        collective=message.collective,
        term=message.term,
        what=message.what,
        size=message.size.text(),
        share=_share(message, int(message.ranks[0])),
        sent_bytes=float(message.sent_bytes[0]),
        times=round(float(message.times[0])),
    )


def _share(message: Message, ranks: int) -> str:
    if message.passes_whole:
        return ""
    ring = f"{ranks - 1}/{ranks}"
    return f"2 x {ring}" if message.collective == "all_reduce" else ring
