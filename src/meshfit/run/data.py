"""Data parallelism: replicated, fully sharded, hybrid, with or without a sharded optimizer.

All of them average gradients over the ranks that see different tokens, context-parallel ones
included; the loss is scaled for that.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from meshfit.mesh.spec import LayoutSpec
from meshfit.run.experts.model import ExpertModel
from meshfit.run.mesh import RankMesh
from meshfit.run.model.transformer import Stage


def uses_ddp(layout: LayoutSpec) -> bool:
    """Whether replicas are kept by DistributedDataParallel.

    It takes plain tensors only, and pipelining drives its gradient reduction through private
    parts; with ``tp`` or ``pp`` the replicas are kept by FSDP2's ``replicate``.
    """
    return layout.gradient_ranks > 1 and layout.zero_stage <= 1 and not _is_combined(layout)


def uses_fsdp(layout: LayoutSpec) -> bool:
    """Whether FSDP2's hooks (``fully_shard`` or ``replicate``) run the stage's communication."""
    return layout.gradient_ranks > 1 and not uses_ddp(layout)


def _is_combined(layout: LayoutSpec) -> bool:
    return layout.tp > 1 or layout.pp > 1


def shard_or_replicate(
    stage: Stage,
    mesh: RankMesh,
    compute_dtype: torch.dtype | None,
    experts: ExpertModel | None,
) -> None:
    """Put FSDP2's hooks on a stage with meta parameters: one unit a layer, the rest with the root.

    ZeRO stage 3 frees gathered parameters after the forward, stage 2 keeps them to the backward. The
    root's stay in any case: backward begins with them.
    ``compute_dtype`` is what parameters are gathered and used in (None: as they are); gradients
    are reduced in fp32. ``experts`` that expert parallelism divides have units of their own.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: PLC0415

    layout = mesh.layout
    precision = MixedPrecisionPolicy(param_dtype=compute_dtype, reduce_dtype=torch.float32)
    if mesh.shards is not None:
        options = {
            "mesh": mesh.states,
            "mp_policy": precision,
            "reshard_after_forward": layout.zero_stage == 3,
        }
        wrap = fully_shard
    else:
        from torch.distributed._composable.replicate_with_fsdp import replicate  # noqa: PLC0415

        options = {"mesh": mesh.replicas, "mp_policy": precision}
        wrap = replicate
    if experts is not None:
        reshards = layout.zero_stage == 3
        apart = experts.divide_states(stage, mp_policy=precision, reshard_after_forward=reshards)
        options["ignored_params"] = apart
    for layer in stage.layers:
        wrap(layer, **options)
    if mesh.shards is not None:
        options["reshard_after_forward"] = False
    wrap(stage, **options)


def wrap_ddp(stage: Stage, mesh: RankMesh) -> nn.Module:
    """The stage behind DistributedDataParallel over every rank that sees other tokens."""
    from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415

    group = torch.distributed.group.WORLD  # nothing but data parallelism uses DDP here
    return DistributedDataParallel(
        stage,
        process_group=group,
        gradient_as_bucket_view=True,
        forward_sync_buffers=False,  # rotary frequencies are constants
        init_sync=False,  # every rank has loaded the same weights
    )


class GradientSync:
    """Which gradient communication each micro-batch's backward does.

    ``replicate`` and DDP reduce once an optimizer step, and so does the replica axis of HSDP;
    shards are reduced in every backward, so that a rank never keeps a whole gradient.
    """

    def __init__(self, module: nn.Module, layout: LayoutSpec) -> None:
        self._module = module
        self._is_ddp = uses_ddp(layout)
        self._is_fsdp = uses_fsdp(layout)
        self._is_sharded = layout.zero_stage > 1
        self._is_hybrid = self._is_sharded and layout.dp_replicate > 1
        self._set_for_last: bool | None = None

    def of_micro_batch(self, *, is_last: bool) -> AbstractContextManager[None]:
        """The context for the forward and backward of one micro-batch."""
        if self._is_ddp and not is_last:
            return self._module.no_sync()
        if self._is_fsdp and is_last is not self._set_for_last:
            self._set_fsdp(is_last)
            self._set_for_last = is_last
        return nullcontext()

    def _set_fsdp(self, is_last: bool) -> None:
        self._module.set_is_last_backward(is_last)
        if not self._is_sharded:
            self._module.set_requires_gradient_sync(is_last)
        elif self._is_hybrid:
            self._module.set_requires_all_reduce(is_last)
