"""What routers did, collected step by step."""

import math

import pytest


def log_of(layers: list[int]):
    import torch

    from meshfit.run.experts.log import RoutingLog

    log = RoutingLog()
    log.start(layers, 3, torch.device("cpu"))
    return log


def test_losses_are_grouped_by_the_expert_that_weighs_most_in_the_last_layer() -> None:
    import torch

    log = log_of([1, 5])
    scores = torch.full((4, 3), 1 / 3)
    chosen = torch.tensor([[0, 1], [1, 0], [2, 0], [2, 1]])
    weights = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]])
    log.route(1, scores, chosen.flip(0), weights)
    log.route(5, scores, chosen, weights)
    log.lose(torch.tensor([1.0, 2.0, 4.0, 8.0]), torch.tensor([3, 3, 3, -100]))
    step = log.end_step()
    assert step.loss_E.tolist() == [3.0, 0.0, 4.0]
    assert step.labels_E.tolist() == [2, 0, 1]


def test_entropy_is_that_of_scores_that_add_up_to_one() -> None:
    import torch

    log = log_of([0])
    scores = torch.tensor([[2.0, 2.0, 2.0], [5.0, 0.0, 0.0]])  # as of sigmoids: no probabilities
    log.route(0, scores, torch.tensor([[0], [0]]), torch.ones(2, 1))
    assert log.end_step().entropy_L.tolist() == pytest.approx([math.log(3)])


def test_a_forward_that_recomputation_repeats_is_not_counted_again() -> None:
    import torch
    from torch.utils.checkpoint import checkpoint

    log = log_of([0])

    def forward(x):
        log.send(0, torch.tensor([1, 2, 3]))
        return x.sin()

    output = checkpoint(forward, torch.ones(2, requires_grad=True), use_reentrant=False)
    output.sum().backward()
    assert log.end_step().tokens_LE.tolist() == [[1, 2, 3]]


def test_every_step_is_counted_anew() -> None:
    import torch

    log = log_of([0])
    for _ in range(2):
        log.send(0, torch.tensor([1, 0, 4]))
        log.limit(0, torch.tensor(1), torch.tensor(2))
        log.end_step()
    assert [step.tokens_LE.tolist() for step in log.steps] == [[[1, 0, 4]]] * 2
    assert [step.dropped_L.item() for step in log.steps] == [1, 1]


class Clock:
    """Marks are numbers that count up by one."""

    def __init__(self) -> None:
        self.now = 0

    def mark(self) -> int:
        self.now += 1
        return self.now

    def settle(self) -> None:
        pass

    def seconds(self, begin: int, end: int) -> float:
        return float(end - begin)


def test_spans_are_summed_up_by_step_and_read_at_any_time() -> None:
    from meshfit.run.experts.spans import Spans

    spans = Spans(Clock())
    assert spans.seconds() == ()
    for count in (2, 0, 3):
        for _ in range(count):
            with spans.measure():
                pass
        spans.end_step()
    assert spans.seconds() == (2.0, 0.0, 3.0)
