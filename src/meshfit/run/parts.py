"""What each part of a model takes on one device: the embedding, every layer, the head with the loss."""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import nn

from meshfit.measure.parts import PartMarks
from meshfit.measure.timing import boundaries_of
from meshfit.record.schema import PartCost
from meshfit.run.model.transformer import Stage
from meshfit.run.parallelize import RankModel
from meshfit.run.trainer import Trainer

EMBEDDING, HEAD = "embedding", "head"


def measure_parts(
    model: RankModel, trainer: Trainer, device: torch.device, passes: Iterable[int]
) -> tuple[PartCost, ...]:
    """Costs of the parts of a whole model, in order: medians of the time over ``passes``, memory of one
    more. The first pass, which makes gradients, is not counted.

    Args:
        passes: numbers of the steps whose data are taken, at least two.
    """
    (stage,) = model.stages
    clock = boundaries_of(device.type)
    marked = [_pass(model, trainer, step, clock.mark) for step in passes][1:]
    clock.settle()
    spans = [[clock.seconds(*span) for span in pairwise(marks)] for marks in marked]
    seconds = _forward_and_backward([median(of_one) for of_one in zip(*spans, strict=True)])
    parts = zip(_modules(stage), seconds, _kept_bytes(model, trainer), strict=True)
    return tuple(
        PartCost(
            name=name,
            seconds=one,
            kept_bytes=kept,
            parameter_bytes=sum(p.nbytes for p in parameters),
            trained_bytes=sum(p.nbytes for p in parameters if p.requires_grad),
        )
        for (name, parameters), one, kept in parts
    )


def _pass(model: RankModel, trainer: Trainer, step: int, mark: Callable[[], Any]) -> list[Any]:
    """Marks of one forward and backward: begin, end of each part's forward, of the head's, then of the
    backward of each from the last to the first."""
    (stage,) = model.stages
    inputs, labels = trainer.load(step)
    assert inputs is not None and labels is not None, "one process has both ends of the model"
    if model.experts is not None:
        model.experts.begin_step(step)
    with PartMarks([stage.embedding, *stage.layers], mark) as marks:
        marks.add()
        loss = model.token_loss_sum(stage(inputs), labels, scale=1 / labels.numel())
        marks.add()
        loss.backward()
        marks.end()
    if model.experts is not None:
        model.experts.end_step()
    return marks.marks


def _forward_and_backward(spans: list[float]) -> list[float]:
    """Of each part, from spans in the order of a pass."""
    half = len(spans) // 2
    return [there + back for there, back in zip(spans[:half], reversed(spans[half:]), strict=True)]


def _kept_bytes(model: RankModel, trainer: Trainer) -> list[int]:
    """What is in use when a part's forward ends and was not when it began."""
    from meshfit.measure.tensors import TensorTracker  # noqa: PLC0415

    with TensorTracker(model.stages) as tracker:
        totals = _pass(model, trainer, 0, lambda: tracker.live().total)
    forward = totals[: len(totals) // 2 + 1]
    return [after - before for before, after in pairwise(forward)]


def _modules(stage: Stage) -> Iterator[tuple[str, list[nn.Parameter]]]:
    """Names of parts and their parameters; a tied weight is in both ends, as a pipeline has it."""
    embeddings = [getattr(stage.base, name) for name in stage.family.embeddings]
    yield EMBEDDING, _parameters(embeddings)
    for number, layer in zip(stage.layer_range, stage.layers, strict=True):
        yield f"layer {number}", _parameters([layer])
    yield HEAD, _parameters([stage.final_norm, stage.head])


def _parameters(modules: Iterable[nn.Module]) -> list[nn.Parameter]:
    return [parameter for module in modules for parameter in module.parameters()]
