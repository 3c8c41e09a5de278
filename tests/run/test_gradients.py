"""The global norm and the comparison of gradients, in one process."""

import math
from pathlib import Path

import pytest

from meshfit.errors import RunError
from meshfit.mesh.spec import LayoutSpec


def single():
    from meshfit.run.mesh import RankMesh

    return RankMesh(layout=LayoutSpec(), devices=None)


def parameters(scale: float = 1.0) -> dict:
    import torch

    generator = torch.Generator().manual_seed(0)
    made = {name: torch.nn.Parameter(torch.zeros(3, 4)) for name in ("a", "b")}
    for parameter in made.values():
        parameter.grad = scale * torch.randn(3, 4, generator=generator)
    return made


def compare(candidate: dict, reference: dict, folder: Path):
    from meshfit.run.gradients import compare_gradients, save_gradients

    save_gradients(reference, folder)
    return compare_gradients(candidate, single(), folder)


def test_equal_gradients_have_no_error(tmp_path: Path) -> None:
    for gradient in compare(parameters(), parameters(), tmp_path):
        assert gradient.error == 0
        assert gradient.ratio == pytest.approx(1)


def test_a_scaled_gradient_shows_its_factor(tmp_path: Path) -> None:
    for gradient in compare(parameters(scale=4), parameters(), tmp_path):
        assert gradient.error == pytest.approx(3)
        assert gradient.ratio == pytest.approx(4)


def test_only_the_parameter_that_differs_shows_an_error(tmp_path: Path) -> None:
    candidate = parameters()
    candidate["b"].grad[0, 0] += 1
    a, b = compare(candidate, parameters(), tmp_path)
    assert (a.name, a.error) == ("a", 0)
    assert b.error == pytest.approx(1 / parameters()["b"].grad.norm().item())


def test_a_gradient_that_should_be_zero_and_is_not_has_an_infinite_error(tmp_path: Path) -> None:
    a, b = compare(parameters(), parameters(scale=0), tmp_path)
    assert a.error == b.error == math.inf
    a, b = compare(parameters(scale=0), parameters(scale=0), tmp_path / ".")
    assert (a.error, a.ratio) == (0, 1)


def test_a_parameter_that_no_rank_holds_is_an_error(tmp_path: Path) -> None:
    candidate = parameters()
    del candidate["b"]
    with pytest.raises(RunError, match="hold 0 of the 12 elements of b's gradient"):
        compare(candidate, parameters(), tmp_path)


def test_a_parameter_that_the_reference_lacks_is_an_error(tmp_path: Path) -> None:
    reference = parameters()
    del reference["b"]
    with pytest.raises(RunError, match="the reference has no gradient of b"):
        compare(parameters(), reference, tmp_path)


def test_norm_and_clip_are_those_of_torch() -> None:
    import torch

    from meshfit.run.gradients import GlobalNorm

    ours, theirs = parameters(), parameters()
    norm = GlobalNorm(list(ours.values()), single())
    measured = norm.measure()
    norm.clip(measured, 0.5)
    expected = torch.nn.utils.clip_grad_norm_(theirs.values(), 0.5)
    assert measured.item() == pytest.approx(expected.item(), rel=1e-6)
    for name in ours:
        torch.testing.assert_close(ours[name].grad, theirs[name].grad)


def test_a_small_gradient_is_not_clipped() -> None:
    import torch

    from meshfit.run.gradients import GlobalNorm

    ours = parameters()
    norm = GlobalNorm(list(ours.values()), single())
    norm.clip(norm.measure(), 1000.0)
    assert torch.equal(ours["a"].grad, parameters()["a"].grad)
