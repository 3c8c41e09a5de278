from contextlib import contextmanager

import pytest


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def model(torch):
    """Two layers and a head, the first layer recomputed in the backward."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.checkpointed = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
            self.kept = torch.nn.Linear(4, 4)
            self.lm_head = torch.nn.Linear(4, 8)

        def forward(self, hidden):
            from torch.utils.checkpoint import checkpoint

            hidden = checkpoint(self.checkpointed, hidden, use_reentrant=False).sin()
            return self.lm_head(self.kept(hidden))

    return Model()


@contextmanager
def noted(torch, model, optimizer=None):
    """While entered, collects the (operation, phase) pairs of everything that runs."""
    from torch.utils._python_dispatch import TorchDispatchMode

    from meshfit.measure.phases import StepPhases

    phases, seen = StepPhases([model], optimizer), []

    class Note(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append((func._opname, phases.now()))
            return func(*args, **(kwargs or {}))

    with phases, Note():
        yield seen


def phases_of(seen: list[tuple[str, str]], operation: str) -> list[str]:
    return [phase for name, phase in seen if name == operation]


def test_a_step_passes_through_every_phase_in_order(torch, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(2, 4, requires_grad=True)
    with noted(torch, model, optimizer) as seen:
        model(inputs).exp().sum().backward()
        with torch.no_grad():
            inputs.abs()
        optimizer.step()
    order = list(dict.fromkeys(phase for _, phase in seen))
    assert order == [
        "forward", "loss", "loss_backward", "backward", "recompute", "between", "optimizer",
    ]  # fmt: skip


def test_the_head_and_what_follows_it_are_loss_forward_and_backward(torch, model):
    with noted(torch, model) as seen:
        model(torch.randn(2, 4)).exp().sum().backward()
    assert phases_of(seen, "addmm") == ["forward", "forward", "loss", "recompute"]
    assert phases_of(seen, "exp") == ["loss"]
    # exp's backward multiplies; sin's backward takes the cosine.
    assert phases_of(seen, "mul")[0] == "loss_backward"
    assert phases_of(seen, "cos") == ["backward"]


def test_backwards_find_their_loss_when_micro_batches_are_in_flight_together(torch, model):
    with noted(torch, model) as seen:
        losses = [model(torch.randn(2, 4)).exp().sum() for _ in range(3)]
        for loss in losses:
            loss.backward()
    assert phases_of(seen, "sin") == ["forward"] * 3
    assert phases_of(seen, "exp") == ["loss"] * 3
    assert phases_of(seen, "cos") == ["backward"] * 3
    backward_of_exp = [phase for phase in phases_of(seen, "mul") if phase == "loss_backward"]
    assert len(backward_of_exp) == 3


def test_a_module_that_is_not_part_of_the_model_may_compute_the_loss(torch, model):
    criterion = torch.nn.CrossEntropyLoss()
    with noted(torch, model) as seen:
        criterion(model(torch.randn(2, 4)), torch.tensor([1, 2])).backward()
    assert phases_of(seen, "nll_loss_forward") == ["loss"]
    assert phases_of(seen, "_log_softmax_backward_data") == ["loss_backward"]


def test_a_stage_without_a_head_has_no_loss(torch):
    stage = torch.nn.Linear(4, 4)
    with noted(torch, stage) as seen:
        output = stage(torch.randn(2, 4))
        output.exp().backward(torch.ones(2, 4))
    assert {phase for _, phase in seen} == {"forward", "backward"}
