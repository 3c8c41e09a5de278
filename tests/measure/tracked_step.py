"""Run under torchrun by test_tensors: one tracked step of a tiny Llama under several layouts.

Each rank writes ``RANK.json`` into the folder given as the only argument: per case what the
tracker found, what PyTorch's own tracker found, and the bytes that are known from outside.
"""

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM, LlamaConfig

from meshfit.breakdown import MemoryBreakdown
from meshfit.measure.tensors import TensorTracker

CONFIG = LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=4,
    num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
)  # fmt: skip
BATCH, SEQUENCE, MICRO_BATCHES = 8, 32, 4


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model wrapped in some way, and its training step over a number of micro-batches."""

    parts: list[nn.Module]
    optimizer: torch.optim.Optimizer
    step: Callable[[int], None]
    comparable: bool = True
    """Whether PyTorch's own tracker can follow it."""


def build() -> nn.Module:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIG, attn_implementation="sdpa")


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(0, CONFIG.vocab_size, (BATCH, SEQUENCE + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def loss_of(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return cross_entropy(logits.float().flatten(0, 1), target.flatten())


def plain_case(
    model: nn.Module,
    inner: nn.Module | None = None,
    optimizer=None,
    synchronise: Callable[[bool], AbstractContextManager] = lambda is_last: nullcontext(),
) -> Case:
    """A step without a pipeline, micro-batch by micro-batch."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(micro_batches: int) -> None:
        for index in range(micro_batches):
            inputs, target = batch()
            with synchronise(index == micro_batches - 1):
                loss_of(model(input_ids=inputs, use_cache=False).logits, target).backward()
        optimizer.step()
        optimizer.zero_grad()

    return Case(parts=[inner or model], optimizer=optimizer, step=step)


def ddp(gradients_are_views: bool) -> Case:
    model = build()
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=gradients_are_views)
    return plain_case(wrapped, model)


def ddp_accumulated() -> Case:
    """Gradients reduced once a step, in the last micro-batch."""
    model = build()
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)

    def synchronise(is_last: bool) -> AbstractContextManager:
        return nullcontext() if is_last else wrapped.no_sync()

    return plain_case(wrapped, model, synchronise=synchronise)


def zero1() -> Case:
    model = build()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
    return plain_case(DistributedDataParallel(model), model, optimizer)


def shard(model: nn.Module, mesh, **options) -> nn.Module:
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def fsdp(**options) -> Case:
    return plain_case(shard(build(), init_device_mesh("cpu", (dist.get_world_size(),)), **options))


def tensor_parallel() -> Case:
    model, mesh = build(), init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    split_layers(model, mesh)
    return plain_case(model, optimizer=torch.optim.AdamW(model.parameters(), foreach=False))


def fsdp_tp() -> Case:
    """FSDP2 over DTensors: a tensor-parallel group of one rank each, since there are only two."""
    model = build()
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
    split_layers(model, mesh["tp"])
    shard(model, mesh["dp"])
    return plain_case(model, optimizer=torch.optim.AdamW(model.parameters(), foreach=False))


def split_layers(model: nn.Module, mesh) -> None:
    into, out_of = ColwiseParallel(), RowwiseParallel()
    plan = {f"self_attn.{name}_proj": into for name in "qkv"} | {"self_attn.o_proj": out_of}
    plan |= {"mlp.gate_proj": into, "mlp.up_proj": into, "mlp.down_proj": out_of}
    for layer in model.model.layers:
        parallelize_module(layer, mesh, plan)
    parallelize_module(model, mesh, {"lm_head": ColwiseParallel(output_layouts=Replicate())})


class Stage(nn.Module):
    """One of four stages: a layer, with the embedding before the first, norm and head after the last."""

    def __init__(self, index: int) -> None:
        super().__init__()
        model = build()
        self.rotary = model.model.rotary_emb
        self.embed = model.model.embed_tokens if index == 0 else None
        self.layer = model.model.layers[index]
        self.norm = model.model.norm if index == 3 else None
        self.lm_head = model.lm_head if index == 3 else None

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        if self.embed is not None:
            hidden = self.embed(hidden)
        positions = torch.arange(hidden.shape[1])[None]
        hidden = self.layer(hidden, position_embeddings=self.rotary(hidden, positions))
        return hidden if self.lm_head is None else self.lm_head(self.norm(hidden))


def pipeline() -> Case:
    """Interleaved 1F1B: two ranks, two virtual stages on each."""
    rank, device = dist.get_rank(), torch.device("cpu")
    parts = [Stage(index).to(device) for index in (rank, rank + 2)]
    stages = [PipelineStage(part, rank + 2 * chunk, 4, device) for chunk, part in enumerate(parts)]
    schedule = ScheduleInterleaved1F1B(stages, MICRO_BATCHES, loss_fn=loss_of)
    optimizer = torch.optim.AdamW([p for part in parts for p in part.parameters()])

    def step(_micro_batches: int) -> None:
        inputs, target = batch()
        if rank == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=target, losses=[])
        optimizer.step()
        optimizer.zero_grad()

    return Case(parts=parts, optimizer=optimizer, step=step, comparable=False)


def reference_peak_bytes(case: Case) -> int:
    """Peak of a step of one micro-batch by PyTorch's own tracker, which allows no more."""
    root = case.parts[0]
    if isinstance(root, FSDPModule):
        tracker = FSDPMemTracker(root, case.optimizer)
    else:
        tracker = MemTracker()
        # Wrapped by ZeroRedundancyOptimizer, the state is in the optimizer inside.
        tracker.track_external(root, getattr(case.optimizer, "optim", case.optimizer))
    with tracker:
        case.step(1)
    return tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]


def tracked(case: Case, micro_batches: int) -> tuple[TensorTracker, MemoryBreakdown]:
    """A step under our tracker, and what was alive when it ended."""
    with TensorTracker(case.parts, case.optimizer) as tracker:
        case.step(micro_batches)
        after = tracker.live()
    return tracker, after


def local_bytes(tensors) -> int:
    """Bytes of the storages behind tensors, of the local part of a DTensor, each once."""
    locals_ = [t.to_local() if isinstance(t, DTensor) else t for t in tensors]
    return sum({s._cdata: s.nbytes() for s in (t.untyped_storage() for t in locals_)}.values())


def observe(case: Case) -> dict:
    case.step(1)
    tracker, after = tracked(case, micro_batches=2)
    parameters = [p for part in case.parts for p in part.parameters()]
    inner = getattr(case.optimizer, "optim", case.optimizer)
    state = [value for values in inner.state.values() for value in values.values()]
    found = {
        "peak": tracker.peak().as_json(),
        "after": after.as_json(),
        "at": [tracker.peak_at.operation, tracker.peak_at.phase],
        "parameter_bytes": local_bytes(parameters),
        "buffer_bytes": local_bytes(buffer for part in case.parts for buffer in part.buffers()),
        "optimizer_bytes": local_bytes(state),
        "full_parameter_bytes": sum(p.numel() * p.element_size() for p in parameters),
    }
    if case.comparable:
        found["one_micro_batch"] = tracked(case, micro_batches=1)[0].peak().as_json()
        found["reference_bytes"] = reference_peak_bytes(case)
    return found


CASES: dict[str, Callable[[], Case]] = {
    "ddp": lambda: ddp(False),
    "ddp_views": lambda: ddp(True),
    "ddp_accumulated": ddp_accumulated,
    "zero1": zero1,
    "fsdp": fsdp,
    "fsdp_kept": lambda: fsdp(reshard_after_forward=False),
    "fsdp_bf16": lambda: fsdp(mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32)),
    "tp": tensor_parallel,
    "fsdp_tp": fsdp_tp,
    "pipeline": pipeline,
}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = {name: observe(make()) for name, make in CASES.items()}
    Path(sys.argv[1], f"{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
