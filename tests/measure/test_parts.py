"""Marks between parts, told by what has run when each is set."""

from itertools import pairwise

import torch
from torch import nn

from meshfit.measure.parts import PartMarks


class Noted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, name, events):
        ctx.name, ctx.events = name, events
        events.append(f"{name} forward")
        return values.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.events.append(f"{ctx.name} backward")
        return gradient, None, None


class Part(nn.Module):
    """Notes when it runs, twice, with a weight that is used before and one that is used after."""

    def __init__(self, name, events):
        super().__init__()
        self.name, self.events = name, events
        self.first, self.second = (nn.Linear(4, 4, bias=False) for _ in range(2))

    def forward(self, values):
        inner = Noted.apply(self.first(values), f"{self.name}.1", self.events)
        return (values + Noted.apply(self.second(inner), f"{self.name}.2", self.events),)


def events_between_marks(events, parts, values):
    with PartMarks(parts, lambda: len(events)) as marks:
        marks.add()
        for part in parts:
            (values,) = part(values)
        loss = Noted.apply(values.sum(), "head", events)
        marks.add()
        loss.backward()
        marks.end()
    return [events[begin:end] for begin, end in pairwise(marks.marks)]


def test_what_lies_between_two_marks_is_one_parts_forward_or_backward():
    events: list[str] = []
    found = events_between_marks(events, [Part("a", events), Part("b", events)], torch.ones(2, 4))
    assert found == [
        ["a.1 forward", "a.2 forward"],
        ["b.1 forward", "b.2 forward"],
        ["head forward"],
        ["head backward"],
        ["b.2 backward", "b.1 backward"],
        ["a.2 backward", "a.1 backward"],
    ]


def test_backward_has_nothing_of_a_frozen_part_before_all_that_is_trained():
    events: list[str] = []
    frozen, trained = Part("frozen", events), Part("trained", events)
    frozen.requires_grad_(False)
    found = events_between_marks(events, [frozen, trained], torch.ones(2, 4))
    assert found[3:] == [["head backward"], ["trained.2 backward", "trained.1 backward"], []]


def test_hooks_are_gone_afterwards():
    events: list[str] = []
    part = Part("a", events)
    events_between_marks(events, [part], torch.ones(2, 4))
    assert not part._forward_hooks
