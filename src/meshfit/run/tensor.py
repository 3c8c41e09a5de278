"""Tensor parallelism, with or without sequence parallelism between its blocks.

Which linear is column-wise and which row-wise is read from Hugging Face's own plan of the model;
embedding, head and norms are placed here. Every parameter becomes a DTensor: a clip or a fused
optimizer over a mixture of DTensors and plain tensors fails.

Legend: B micro-batch, S sequence, H hidden; "sharded on S" is sequence parallelism.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional

from meshfit.errors import InputError
from meshfit.run.transformer import Stage

_SEQUENCE_DIM = 1
_HEAD_DIM = 2


def apply_tensor_parallel(stage: Stage, mesh: DeviceMesh, *, sequence_parallel: bool) -> None:
    """Shard a stage in place over the one-axis ``mesh``; with ``sequence_parallel`` shard the
    activations between blocks on the sequence as well.

    Raises:
        InputError: a degree that does not divide what it must, or no plan for this model.
    """
    check_divisible(stage.model.config, mesh.size())
    between_blocks = Shard(_SEQUENCE_DIM) if sequence_parallel else Replicate()
    for layer in stage.layers:
        parallelize_module(layer, mesh, _layer_plan(stage, layer, between_blocks))
    _parallelize_ends(stage, mesh, between_blocks)
    stage.tie_head()
    if sequence_parallel:
        _exchange_sequence_shards(stage, mesh)


def check_divisible(config: Any, tp: int) -> None:
    """
    Raises:
        InputError: ``tp`` ranks cannot each hold a whole share of heads, columns and vocabulary.
    """
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size"):
        size = getattr(config, name)
        if size % tp:
            raise InputError(
                f"tp={tp} does not divide {name}={size}: every tensor-parallel rank holds a whole "
                f"share of it; use a divisor of {size}"
            )


def _layer_plan(
    stage: Stage, layer: nn.Module, between_blocks: Placement
) -> dict[str, ParallelStyle]:
    """Module name inside a layer -> how it is sharded."""
    plan: dict[str, ParallelStyle] = {}
    for name, style in _hugging_face_plan(stage).items():
        plan[name] = _style_of(style, between_blocks)
    blocks = list(dict.fromkeys(name.split(".")[0] for name in plan))
    norms = [name for name, _ in layer.named_children() if name not in blocks]
    plan |= {norm: _norm_style(between_blocks) for norm in norms}
    if isinstance(between_blocks, Shard):
        plan |= {block: _gather_sequence(between_blocks, block) for block in blocks}
    return plan


def _hugging_face_plan(stage: Stage) -> dict[str, str]:
    """Module name inside a layer -> style, from ``config.base_model_tp_plan``."""
    prefix = f"{stage.family.layers}.*."
    plan = getattr(stage.model.config, "base_model_tp_plan", None) or {}
    inside = {
        name.removeprefix(prefix): style for name, style in plan.items() if name.startswith(prefix)
    }
    if not inside:
        raise InputError(
            f"transformers has no tensor-parallel plan for {type(stage.model).__name__}; use tp=1"
        )
    return inside


def _style_of(style: str, between_blocks: Placement) -> ParallelStyle:
    match style:
        case "colwise":
            return ColwiseParallel()
        case "rowwise":
            return RowwiseParallel(output_layouts=between_blocks)
        case "replicated_with_grad_allreduce":
            # A norm over each head of q or k: its input is sharded on the heads.
            return SequenceParallel(sequence_dim=_HEAD_DIM, use_local_output=True)
    raise InputError(
        f"tensor-parallel style {style!r} of transformers' plan is not known; use tp=1"
    )


def _norm_style(between_blocks: Placement) -> ParallelStyle:
    if isinstance(between_blocks, Shard):
        return SequenceParallel(sequence_dim=_SEQUENCE_DIM)
    return ReplicatedParallel()


def _gather_sequence(between_blocks: Shard, block: str) -> PrepareModuleInput:
    """Gather the sequence once in front of a block, for all column-wise linears in it."""
    if block == "self_attn":  # the decoder layers call it by keyword, the MLP by position
        return PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": between_blocks},
            desired_input_kwarg_layouts={"hidden_states": Replicate()},
        )
    return PrepareModuleInput(input_layouts=(between_blocks,), desired_input_layouts=(Replicate(),))


def _parallelize_ends(stage: Stage, mesh: DeviceMesh, between_blocks: Placement) -> None:
    """Embedding and head split on the vocabulary (the same way, so that they can be tied)."""
    if stage.embedding is not None:
        embedding = VocabularyParallelEmbedding(stage.embedding, mesh, between_blocks)
        setattr(stage.base, stage.family.embeddings[0], embedding)
    if stage.is_last:
        parallelize_module(stage.final_norm, mesh, _norm_style(between_blocks))
        head = ColwiseParallel(input_layouts=between_blocks, output_layouts=Replicate())
        parallelize_module(stage.head, mesh, head)


def _exchange_sequence_shards(stage: Stage, mesh: DeviceMesh) -> None:
    """Let Hugging Face's model see the whole sequence's shape while ranks hold shards of it.

    The base model derives positions and mask from the shape of its hidden states. A DTensor has
    the global shape, so hidden states reach it as one, and the first layer takes the local shard.
    """
    stage.wrap_input = partial(
        DTensor.from_local, device_mesh=mesh, placements=[Shard(_SEQUENCE_DIM)], run_check=False
    )
    stage.layers[0].register_forward_pre_hook(_take_local_shard, with_kwargs=True)


def _take_local_shard(_module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    hidden_BSH, *rest = args
    return (hidden_BSH.to_local(), *rest), kwargs


class VocabularyParallelEmbedding(nn.Module):
    """A token embedding of which each rank holds the rows of its share of the vocabulary.

    DTensor's own operator gives every rank a gradient of the whole table; here a rank's gradient
    is that of its rows. The output is the sum over ranks, placed as ``output`` says.
    """

    def __init__(self, embedding: nn.Embedding, mesh: DeviceMesh, output: Placement) -> None:
        super().__init__()
        table = distribute_tensor(embedding.weight, mesh, [Shard(0)], src_data_rank=None)
        self.weight = nn.Parameter(table)
        self._mesh = mesh
        self._output = output
        self._num_rows = table.to_local().shape[0]
        self._first_row = self._num_rows * mesh.get_local_rank()
        self._padding_row = self._own_row(embedding.padding_idx)

    def _own_row(self, token: int | None) -> int | None:
        """Where a token's vector is among this rank's rows; None when it is elsewhere."""
        if token is None or not 0 <= token - self._first_row < self._num_rows:
            return None
        return token - self._first_row

    def forward(self, tokens_BS: Tensor) -> Tensor:
        rows_BS = tokens_BS - self._first_row
        elsewhere_BS = (rows_BS < 0) | (rows_BS >= self._num_rows)
        own_BSH = functional.embedding(
            rows_BS.masked_fill(elsewhere_BS, 0), self.weight.to_local(), self._padding_row
        ).masked_fill(elsewhere_BS.unsqueeze(-1), 0.0)
        summands_BSH = DTensor.from_local(own_BSH, self._mesh, [Partial()], run_check=False)
        hidden_BSH = summands_BSH.redistribute(placements=[self._output])
        # Sequence shards stay a DTensor: see _exchange_sequence_shards.
        return hidden_BSH if isinstance(self._output, Shard) else hidden_BSH.to_local()


class ReplicatedParallel(ParallelStyle):
    """Every rank computes the same with a full copy; the parameters are DTensors all the same."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(
            module, device_mesh, input_fn=self._to_dtensor, output_fn=self._to_local
        )

    @staticmethod
    def _to_dtensor(_module: nn.Module, inputs: tuple, mesh: DeviceMesh) -> tuple:
        return (DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False), *inputs[1:])

    @staticmethod
    def _to_local(_module: nn.Module, output: DTensor, _mesh: DeviceMesh) -> Tensor:
        return output.to_local()


class PartialGradients:
    """Gradients that tensor-parallel ranks hold as summands, made whole in one all-reduce.

    A norm over a sharded sequence (or over its own heads) gives each rank a part of its weight's
    gradient. Left so, every optimizer operation would reduce each of them again.
    """

    def __init__(self, parameters: list[nn.Parameter], mesh: DeviceMesh) -> None:
        self._parameters = parameters
        self._mesh = mesh
        self._partial: list[nn.Parameter] | None = None

    @torch.no_grad()
    def reduce(self) -> None:
        """Replace every partial gradient by the sum over the tensor-parallel ranks."""
        if self._partial is None:  # the first backward shows which they are
            self._partial = [p for p in self._parameters if _is_partial(p.grad)]
        if not self._partial:
            return
        summands = [parameter.grad.to_local() for parameter in self._partial]
        flat = torch.cat([summand.flatten() for summand in summands])
        torch.distributed.all_reduce(flat, group=self._mesh.get_group())
        sums = flat.split([summand.numel() for summand in summands])
        for parameter, total in zip(self._partial, sums, strict=True):
            parameter.grad = DTensor.from_local(
                total.view(parameter.shape), self._mesh, [Replicate()], run_check=False
            )


def _is_partial(tensor: DTensor) -> bool:
    return any(isinstance(placement, Partial) for placement in tensor.placements)
