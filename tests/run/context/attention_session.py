"""Run under torchrun by test_attention: each case's attention over ranks, against one SDPA call.

Rank 0 writes ``found.json`` in the folder given as the only argument: the largest error of any rank
in the output and in the gradients of queries, keys and values, by case.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor.experimental._context_parallel import _attention as torch_ring
from torch.nn.functional import scaled_dot_product_attention

from meshfit.run.context.attention import ContextParallel, context_parallel_of
from meshfit.run.context.ring import RingAttention
from meshfit.run.mesh import build_mesh
from tests.run.context.attention_cases import (
    BATCH,
    CASES,
    DOCUMENT_LENGTHS,
    HEAD_DIM,
    RING,
    SEQUENCE_LENGTH,
    Case,
    Problem,
)

CPU = torch.device("cpu")
SCALE = 0.3
aten = torch.ops.aten


def inputs_of(problem: Problem) -> list[Tensor]:
    """Queries, keys, values and the gradient of the output, the same on every rank."""
    generator = torch.Generator().manual_seed(0)
    dtype = getattr(torch, problem.dtype)
    heads = (problem.query_heads, problem.key_heads, problem.key_heads, problem.query_heads)
    return [
        torch.randn(BATCH, n, SEQUENCE_LENGTH, HEAD_DIM, generator=generator, dtype=dtype)
        for n in heads
    ]


def documents() -> Tensor:
    rows = [
        torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
        for lengths in DOCUMENT_LENGTHS
    ]
    return torch.stack(rows)


def expected(problem: Problem) -> list[Tensor]:
    """Output and gradients of plain SDPA in fp64, with everything that is hidden written out."""
    q, k, v, grad = (x.double().requires_grad_() for x in inputs_of(problem))
    order = torch.arange(SEQUENCE_LENGTH)
    distance = order[:, None] - order
    is_seen = ((distance >= 0) & (distance < (problem.window or SEQUENCE_LENGTH)))[None]
    if problem.is_packed:
        is_seen = is_seen & (documents()[:, :, None] == documents()[:, None, :])
    repeats = problem.query_heads // problem.key_heads
    out = scaled_dot_product_attention(
        q,
        k.repeat_interleave(repeats, 1),
        v.repeat_interleave(repeats, 1),
        is_seen[:, None],
        scale=SCALE,
    )
    return [out, *torch.autograd.grad(out, (q, k, v), grad)]


def found(problem: Problem, context: ContextParallel) -> list[Tensor]:
    """This rank's part of the same."""
    places = context.positions(SEQUENCE_LENGTH, CPU)
    q, k, v, grad = (x.index_select(2, places).requires_grad_() for x in inputs_of(problem))
    masks = context.masks(SEQUENCE_LENGTH, CPU, documents() if problem.is_packed else None)
    out = context.attend(q, k, v, scale=SCALE, window=problem.window, masks=masks)
    return [out, *torch.autograd.grad(out, (q, k, v), grad)]


def errors(case: Case, context: ContextParallel) -> list[float]:
    places = context.positions(SEQUENCE_LENGTH, CPU)
    parts = (whole.index_select(2, places) for whole in expected(case.problem))
    return [
        float((ours.double() - part).detach().norm() / part.detach().norm())
        for ours, part in zip(found(case.problem, context), parts, strict=True)
    ]


def errors_of_torch() -> list[float]:
    """Our ring against the one of PyTorch, which has no rule for the CPU's kernel of its own."""
    context = context_parallel_of(build_mesh(Case(problem=Problem(), keys=RING).layout, "cpu"))
    group, problem = context.keys, Problem(dtype="float32")
    places = context.positions(SEQUENCE_LENGTH, CPU)
    q, k, v, grad = (x.index_select(2, places).requires_grad_() for x in inputs_of(problem))
    ours = RingAttention.apply(q, k, v, group, SCALE)
    ours = [ours, *torch.autograd.grad(ours, (q, k, v), grad)]
    torch_ring.set_rotate_method("alltoall")
    options = {"group": group, "seq_dim": 2, "is_causal": True, "dropout_p": 0.0, "scale": SCALE}
    with torch.no_grad():
        forward = aten._scaled_dot_product_flash_attention_for_cpu
        out, lse = torch_ring._templated_ring_attention(
            op=forward, query=q, key=k, value=v, **options
        )
        backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
        theirs = torch_ring._templated_ring_attention_backward(
            op=backward, grad_out=grad, grad_out_name="grad_out", query=q, key=k, value=v,
            out=out, logsumexp=lse, **options,
        )  # fmt: skip
    pairs = zip(ours, [out, *theirs], strict=True)
    return [float((a - b).detach().norm() / b.norm()) for a, b in pairs]


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    results = {}
    for case in CASES:
        context = context_parallel_of(build_mesh(case.layout, "cpu"))
        results[case.name] = _worst(errors(case, context))
        if context.keys is None or context.heads is None:
            tokens = torch.arange(2 * SEQUENCE_LENGTH).view(2, -1)
            assert torch.equal(context.whole(context.own(tokens)), tokens)
    results["torch"] = _worst(errors_of_torch())
    if dist.get_rank() == 0:
        (Path(sys.argv[1]) / "found.json").write_text(json.dumps(results))
    dist.destroy_process_group()


def _worst(values: list[float]) -> list[float]:
    worst = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    return worst.tolist()


if __name__ == "__main__":
    main()
