"""Blocks put together give what attention over all keys at once gives; so do the kernels by device."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.run.context.blocks import Block, Gradients, Rows
from meshfit.run.context.kernels import (
    EfficientOnCuda,
    FlashOnCpu,
    FlashOnCuda,
    NarrowValues,
    Problem,
    Unfused,
)

SCALE = 0.3


def problem(queries=8, keys=12, *, groups=2, value_width=16, dtype="float64", device="cpu"):
    """Queries, keys, values and the gradient of the output."""
    import torch

    torch.manual_seed(0)
    shapes = (
        (4, queries, 16),
        (groups, keys, 16),
        (groups, keys, value_width),
        (4, queries, value_width),
    )
    dtype = getattr(torch, dtype)
    return [torch.randn(2, *shape, dtype=dtype, device=device) for shape in shapes]


def formula(q, k, v, grad, *, mask=None, is_causal=False):
    """Output and gradients, by autograd, of attention written out."""
    import torch

    q, k, v = (x.double().requires_grad_() for x in (q, k, v))
    repeats = q.shape[1] // k.shape[1]
    scores = SCALE * q @ k.repeat_interleave(repeats, 1).mT
    scores = scores if mask is None else scores + mask
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    out = scores.softmax(-1) @ v.repeat_interleave(repeats, 1)
    return [out, *torch.autograd.grad(out, (q, k, v), grad.double())]


def assert_near(found, expected, tolerance):
    for ours, theirs in zip(found, expected, strict=True):
        assert float((ours.double() - theirs).detach().norm() / theirs.detach().norm()) <= tolerance


@given(st.lists(st.integers(1, 11), unique=True, max_size=4), st.sampled_from([16, 10]))
def test_any_cut_of_the_keys_gives_the_same(cuts: list[int], value_width: int) -> None:
    import torch

    q, k, v, grad = problem(value_width=value_width)
    edges = [0, *sorted(cuts), 12]
    blocks = [
        Block(queries=slice(0, 8), keys=slice(a, b), is_causal=False) for a, b in pairwise(edges)
    ]
    rows = Rows(q, v.shape[-1], SCALE)
    for block in blocks:
        rows.add(block, k, v)
    gradients = Gradients(grad, q, rows.out, rows.lse, scale=SCALE)
    parts = [gradients.add(block, k, v) for block in blocks]
    dk, dv = (torch.cat(each, dim=2) for each in zip(*parts, strict=True))
    assert_near([rows.out, gradients.queries, dk, dv], formula(q, k, v, grad), 1e-13)


def test_queries_that_no_block_has_seen_stay_empty() -> None:
    q, k, v, _ = problem()
    rows = Rows(q, v.shape[-1], SCALE)
    late = Block(queries=slice(4, 8), keys=slice(0, 12), is_causal=False)
    rows.add(late, k, v)
    assert rows.out[:, :, :4].abs().max() == 0
    assert_near([rows.out[:, :, 4:]], [formula(q, k, v, q)[0][:, :, 4:]], 1e-13)


def kernel_results(kernel, q, k, v, grad, **options):
    given = Problem(q_BNSD=q, k_BGTD=k, v_BGTD=v, scale=SCALE, **options)
    out, lse = kernel.forward(given)
    return [out, *kernel.backward(given, grad, out, lse)]


def random_mask(q, k):
    import torch

    is_hidden = torch.rand(2, 1, q.shape[2], k.shape[2], device=q.device) < 0.3
    is_hidden[..., 0] = False
    return torch.zeros(is_hidden.shape, dtype=q.dtype, device=q.device).masked_fill(
        is_hidden, float("-inf")
    )


@pytest.mark.parametrize(
    ("kernel", "value_width"),
    [
        (FlashOnCpu(), 16),
        (Unfused(), 16),
        (Unfused(), 10),
        (NarrowValues(FlashOnCpu()), 10),
    ],
    ids=lambda one: type(one).__name__ if hasattr(one, "forward") else one,
)
@pytest.mark.parametrize("kind", ["all", "causal", "masked"])
def test_kernels_of_the_cpu_compute_the_formula(kernel, value_width: int, kind: str) -> None:
    q, k, v, grad = problem(keys=8, value_width=value_width)
    options = {
        "mask": random_mask(q, k) if kind == "masked" else None,
        "is_causal": kind == "causal",
    }
    assert_near(
        kernel_results(kernel, q, k, v, grad, **options), formula(q, k, v, grad, **options), 1e-13
    )


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kernel", "dtype", "kind", "tolerance"),
    [
        (FlashOnCuda(), "bfloat16", "all", 1e-2),
        (FlashOnCuda(), "bfloat16", "causal", 1e-2),
        (EfficientOnCuda(), "float32", "all", 1e-5),
        (EfficientOnCuda(), "float32", "causal", 1e-5),
        (EfficientOnCuda(), "bfloat16", "masked", 1e-2),
        (Unfused(), "float64", "masked", 1e-13),
    ],
)
def test_kernels_of_a_gpu_compute_the_formula(kernel, dtype, kind, tolerance) -> None:
    q, k, v, grad = problem(queries=40, keys=40, dtype=dtype, device="cuda")
    options = {
        "mask": random_mask(q, k) if kind == "masked" else None,
        "is_causal": kind == "causal",
    }
    assert_near(
        kernel_results(kernel, q, k, v, grad, **options),
        formula(q, k, v, grad, **options),
        tolerance,
    )
