"""Training loops written by hand, as anyone would, that ``runner.py`` sets the runner against.

Each builds its own model from the same initial weights and gives a function that runs one optimizer
step on this rank's sequences: forward, backward, clipping to 1, AdamW.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM

from meshfit.workload.corpus import Corpus

Step = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Work:
    """What every loop trains: a Llama from ``weights``, on sequences ``first`` to ``first + count`` of
    each step's batch."""

    config: dict
    weights: Path
    corpus: Corpus
    first: int
    count: int
    learning_rate: float

    def tokens(self, step: int) -> torch.Tensor:
        return torch.from_numpy(self.corpus.batch(step, self.first, self.count))

    def model(self) -> LlamaForCausalLM:
        config = LlamaConfig(**{k: v for k, v in self.config.items() if k != "model_type"})
        model = LlamaForCausalLM.from_pretrained(
            self.weights, config=config, attn_implementation="sdpa"
        )
        return model.train()

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=self.learning_rate, fused=True)


def loss_of(model: torch.nn.Module, tokens: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
    logits = model(tokens[:, :-1], use_cache=False, **inputs).logits
    return cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())


def loop(work: Work, model: torch.nn.Module, context: Callable = nullcontext, **inputs) -> Step:
    optimizer = work.optimizer(model)

    def step(index: int) -> None:
        with context():
            loss_of(model, work.tokens(index), **inputs).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def plain(work: Work, _mesh: None) -> Step:
    """One process."""
    return loop(work, work.model())


def replicated(work: Work, _mesh: DeviceMesh) -> Step:
    """DistributedDataParallel."""
    return loop(work, DistributedDataParallel(work.model(), gradient_as_bucket_view=True))


def sharded(work: Work, mesh: DeviceMesh) -> Step:
    """FSDP2, one unit a layer."""
    model = work.model()
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return loop(work, model)


def tensor_parallel(work: Work, mesh: DeviceMesh) -> Step:
    """Tensor with sequence parallelism and divided logits, the plan of PyTorch's own tutorial.

    Positions are given: the model would count those of its shard of the sequence.
    """
    model = work.model()
    for layer in model.model.layers:
        parallelize_module(layer, mesh, _plan_of_layer())
    ends = {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "model.norm": SequenceParallel(),
        "lm_head": ColwiseParallel(
            input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False
        ),
    }
    parallelize_module(model, mesh, ends)
    positions = torch.arange(work.corpus.sequence_length).unsqueeze(0)
    return loop(work, model, loss_parallel, position_ids=positions)


def _plan_of_layer() -> dict:
    gathered = {"desired_input_layouts": (Replicate(),)}
    return {
        "input_layernorm": SequenceParallel(),
        "self_attn": PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": Shard(1)},
            desired_input_kwarg_layouts={"hidden_states": Replicate()},
        ),
        "self_attn.q_proj": ColwiseParallel(),
        "self_attn.k_proj": ColwiseParallel(),
        "self_attn.v_proj": ColwiseParallel(),
        "self_attn.o_proj": RowwiseParallel(output_layouts=Shard(1)),
        "post_attention_layernorm": SequenceParallel(),
        "mlp": PrepareModuleInput(input_layouts=(Shard(1),), **gathered),
        "mlp.gate_proj": ColwiseParallel(),
        "mlp.up_proj": ColwiseParallel(),
        "mlp.down_proj": RowwiseParallel(output_layouts=Shard(1)),
    }


def under_accelerate(work: Work, mesh: DeviceMesh | None) -> Step:
    """The same loop by Accelerate: FSDP2 where ``mesh`` is that of shards, else its own DDP."""
    from accelerate import Accelerator  # noqa: PLC0415

    accelerator = Accelerator(cpu=True)
    if mesh is not None and mesh.mesh_dim_names == ("dp_shard",):
        _use_fsdp2(accelerator)
    plain_model = work.model()
    model, optimizer = accelerator.prepare(plain_model, work.optimizer(plain_model))

    def step(index: int) -> None:
        accelerator.backward(loss_of(model, work.tokens(index)))
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _use_fsdp2(accelerator: Any) -> None:
    """Accelerate 1.15 passes over an FSDP plugin on CPU ranks without a word (``AcceleratorState`` reads
    it for accelerators alone) and would run DDP; its state is told by hand."""
    from accelerate import FullyShardedDataParallelPlugin  # noqa: PLC0415
    from accelerate.utils import DistributedType  # noqa: PLC0415

    accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        reshard_after_forward=True,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["LlamaDecoderLayer"],
    )
    accelerator.state.distributed_type = DistributedType.FSDP
    assert accelerator.is_fsdp2
