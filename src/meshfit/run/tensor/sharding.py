"""Tensor parallelism, with or without sequence parallelism between its blocks.

Which linear is column-wise and which row-wise stands in ``run.tensor.plan``; embedding, head and
norms are placed here. Logits stay divided over the vocabulary, up to the loss.

Legend: B micro-batch, S sequence, H hidden; "sharded on S" is sequence parallelism.
"""

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from meshfit.errors import InputError
from meshfit.measure.timeline.axes import along
from meshfit.run.experts.layer import has_experts, share_router
from meshfit.run.model.adapters import BASE, AdaptedLinear
from meshfit.run.model.transformer import Stage, head_dim_of
from meshfit.run.tensor.latent import first_factor_style, latent_style
from meshfit.run.tensor.plan import check_divisible, packings_of, plan_of_layers, share_heads
from meshfit.run.tensor.styles import (
    ReplicatedParallel,
    SequenceParallelPositions,
    SharedHeads,
    TokenwiseLinear,
    TransposedParallel,
    VocabularyParallelEmbedding,
    norm_style,
)

_SEQUENCE_DIM = 1
_HEAD_DIM = 2

_READS_WHOLE_SEQUENCES = ("colwise", "transposed_colwise", "shared_heads")
"""Styles of linears in front of whose block the sequence is gathered, once for all of them."""


def apply_tensor_parallel(stage: Stage, mesh: DeviceMesh, *, sequence_parallel: bool) -> None:
    """Shard a stage in place over the one-axis ``mesh``; with ``sequence_parallel`` shard the
    activations between blocks on the sequence as well.

    Raises:
        InputError: a degree that does not divide what it must, or no plan for this model.
    """
    config, tp = stage.model.config, mesh.size()
    check_divisible(config, tp)
    between_blocks = Shard(_SEQUENCE_DIM) if sequence_parallel else Replicate()
    plan = plan_of_layers(stage, tp)
    for layer in stage.layers:
        parallelize_module(layer, mesh, _layer_styles(layer, plan, config, between_blocks))
        share_heads(layer, config, tp)
        if has_experts(layer):
            if sequence_parallel:
                layer.mlp.register_forward_pre_hook(_take_local_shard, with_kwargs=True)
            share_router(layer.mlp.gate, mesh)
    stage.packings = packings_of(config, stage.parameters_by_name(), tp)
    _parallelize_ends(stage, mesh, between_blocks)
    stage.tie_head()
    if sequence_parallel:
        _exchange_sequence_shards(stage, mesh)


def _layer_styles(
    layer: nn.Module, plan: dict[str, str], config: Any, between_blocks: Placement
) -> dict[str, ParallelStyle]:
    """Module name inside a layer -> how it is sharded. Routed experts are expert parallelism's."""
    styles: dict[str, ParallelStyle] = {}
    modules = dict(layer.named_modules())
    plan = {
        name: style
        for name, style in plan.items()
        if name in modules and not name.startswith("mlp.experts")
    }
    for name, style in plan.items():
        if isinstance(modules[name], AdaptedLinear):
            styles |= _adapter_styles(name, style, config, between_blocks)
        else:
            styles[name] = _style_of(style, config, between_blocks)
    apart = {"mlp", *(name.split(".")[0] for name in plan)}
    for name, child in layer.named_children():
        if name not in apart and any(True for _ in child.parameters()):
            styles[name] = norm_style(between_blocks)
    if isinstance(between_blocks, Shard):
        reading = [name for name, style in plan.items() if style in _READS_WHOLE_SEQUENCES]
        for block in dict.fromkeys(name.rpartition(".")[0] for name in reading):
            styles[block] = _gather_sequence(between_blocks, block)
    return styles


def _style_of(style: str, config: Any, between_blocks: Placement) -> ParallelStyle:
    match style:
        case "colwise":
            return ColwiseParallel()
        case "rowwise":
            return RowwiseParallel(output_layouts=between_blocks)
        case "shared_heads":
            return SharedHeads(heads=config.num_key_value_heads, head_dim=head_dim_of(config))
        case "transposed_colwise" | "transposed_rowwise":
            by_columns = style == "transposed_colwise"
            return TransposedParallel(by_columns=by_columns, output=between_blocks)
        case "replicated_with_grad_allreduce":
            # A norm over each head of q or k: its input is sharded on the heads.
            return SequenceParallel(sequence_dim=_HEAD_DIM, use_local_output=True)
    of_latents = latent_style(style, between_blocks)
    if of_latents is None:
        raise InputError(
            f"tensor-parallel style {style!r} of transformers' plan is not known; use tp=1"
        )
    return of_latents


def _adapter_styles(
    name: str, style: str, config: Any, between_blocks: Placement
) -> dict[str, ParallelStyle]:
    """The frozen linear as without adapters; of its factors, the one on the divided side is divided.

    By rows the second factor is whole on every rank, and what comes between them is summed over
    ranks while it is narrow; by columns the first one is whole, and the second as the linear.
    """
    if style == "rowwise":
        first = RowwiseParallel(output_layouts=between_blocks)
        second = TokenwiseLinear(tokens=between_blocks)
    else:
        first = first_factor_style(style, between_blocks) or ReplicatedParallel()
        second = _style_of(style, config, between_blocks)
    return {
        f"{name}.{BASE}": _style_of(style, config, between_blocks),
        f"{name}.lora_A": first,
        f"{name}.lora_B": second,
    }


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
    if stage.is_first:
        tokens, *positions = stage.family.embeddings
        embedding = VocabularyParallelEmbedding(stage.embedding, mesh, between_blocks)
        setattr(stage.base, tokens, embedding)
        for name in positions:
            _parallelize_positions(stage.base, name, mesh, between_blocks)
    if stage.is_last:
        parallelize_module(stage.final_norm, mesh, norm_style(between_blocks))
        head = ColwiseParallel(input_layouts=between_blocks, use_local_output=False)
        parallelize_module(stage.head, mesh, head)


def _parallelize_positions(
    base: nn.Module, name: str, mesh: DeviceMesh, between_blocks: Placement
) -> None:
    table = getattr(base, name)
    if isinstance(between_blocks, Shard):
        setattr(base, name, SequenceParallelPositions(table, mesh))
    else:
        parallelize_module(table, mesh, ReplicatedParallel())


def _exchange_sequence_shards(stage: Stage, mesh: DeviceMesh) -> None:
    """Let Hugging Face's model see the whole sequence's shape while ranks hold shards of it.

    The base model derives positions and mask from the shape of its hidden states. A DTensor has
    the global shape, so hidden states reach it as one, and the first layer takes the local shard.
    """
    stage.wrap_input = partial(
        DTensor.from_local, device_mesh=mesh, placements=[Shard(_SEQUENCE_DIM)], run_check=False
    )
    stage.layers[0].register_forward_pre_hook(_take_local_shard, with_kwargs=True)
    if not stage.is_last:
        last = getattr(stage.base, stage.family.final_norm)
        last.register_forward_hook(
            lambda _module, _inputs, hidden_BSH: stage.wrap_input(hidden_BSH)
        )
        stage.unwrap_output = DTensor.to_local


def _take_local_shard(
    _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    hidden_BSH, *rest = args
    return (hidden_BSH.to_local(), *rest), kwargs


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
        with along("tp"):
            torch.distributed.all_reduce(flat, group=self._mesh.get_group())
        sums = flat.split([summand.numel() for summand in summands])
        for parameter, total in zip(self._partial, sums, strict=True):
            parameter.grad = DTensor.from_local(
                total.view(parameter.shape), self._mesh, [Replicate()], run_check=False
            )


def _is_partial(tensor: DTensor) -> bool:
    return any(isinstance(placement, Partial) for placement in tensor.placements)
