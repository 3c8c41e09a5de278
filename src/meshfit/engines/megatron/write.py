"""Megatron's options for a layout; None: the option is left out."""

from meshfit.engines.layout_options import Options
from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec

_CP_METHODS = {"ring": "p2p", "all_to_all": "a2a", "all_gather": "allgather"}
_RECOMPUTE = {"none": None, "selective": "selective", "operations": "selective",
              "block": "full", "full": "full"}  # fmt: skip


def layout_options(layout: LayoutSpec, global_batch_size: int) -> Options:
    """Every option that the layout decides.

    Raises:
        InputError: Megatron has no option for a part of it.
    """
    if layout.recompute not in _RECOMPUTE or layout.schedule not in ("1f1b", "interleaved_1f1b"):
        raise InputError(
            f"megatron has no option for recompute={layout.recompute} with schedule={layout.schedule}"
        )
    if layout.cp > 1 and layout.cp_method not in (None, *_CP_METHODS):
        raise InputError(
            f"cp_method={layout.cp_method} is not written for megatron; {', '.join(_CP_METHODS)} are"
        )
    recomputes_layers = _RECOMPUTE[layout.recompute] == "full"
    return {
        "--tensor-model-parallel-size": layout.tp,
        "--sequence-parallel": layout.sp or None,
        "--pipeline-model-parallel-size": layout.pp,
        **_stages(layout),
        "--context-parallel-size": layout.cp,
        "--cp-comm-type": _CP_METHODS.get(layout.cp_method or "") if layout.cp > 1 else None,
        "--expert-model-parallel-size": layout.ep if layout.ep > 1 else None,
        "--expert-tensor-parallel-size": layout.etp if layout.ep > 1 else None,
        **_data_parallel(layout),
        "--micro-batch-size": layout.micro_batch_size,
        "--global-batch-size": global_batch_size
        if layout.num_micro_batches(global_batch_size) > 1
        else None,
        "--recompute-granularity": _RECOMPUTE[layout.recompute],
        "--recompute-modules": "layernorm moe_act mla_up_proj"
        if layout.recompute == "operations"
        else None,
        "--recompute-method": ("block" if layout.recompute == "block" else "uniform")
        if recomputes_layers
        else None,
        "--recompute-num-layers": layout.recompute_layers if recomputes_layers else None,
        "--optimizer-cpu-offload": layout.offload == "cpu" or None,
        "--use-precision-aware-optimizer": layout.offload == "cpu" or None,
        "--fine-grained-activation-offloading": layout.offload == "activations" or None,
    }


def _stages(layout: LayoutSpec) -> Options:
    """Uneven stages are written out layer by layer, even ones as their number."""
    if layout.stage_layers is None:
        return {
            "--num-virtual-stages-per-pipeline-rank": layout.vpp if layout.vpp > 1 else None,
            "--pipeline-model-parallel-layout": None,
        }
    stages = ["t" * count for count in layout.stage_layers]
    stages[0], stages[-1] = "E" + stages[0], stages[-1] + "L"
    return {
        "--num-virtual-stages-per-pipeline-rank": None,
        "--pipeline-model-parallel-layout": "|".join(stages),
    }


def _data_parallel(layout: LayoutSpec) -> Options:
    """A distributed optimizer is stage 1; Megatron-FSDP has the others."""
    sharded = layout.zero_stage >= 2
    strategy = {2: "optim_grads", 3: "optim_grads_params"}.get(layout.zero_stage)
    several = layout.dp_shard > 1 and layout.dp_replicate > 1
    return {
        "--use-distributed-optimizer": layout.zero_stage >= 1 or None,
        "--num-distributed-optimizer-instances": layout.dp_replicate if several else None,
        "--use-megatron-fsdp": sharded or None,
        "--data-parallel-sharding-strategy": strategy,
        "--ckpt-format": "fsdp_dtensor" if sharded else None,
    }
