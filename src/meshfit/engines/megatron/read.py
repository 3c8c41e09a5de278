"""Arguments of Megatron-LM and Megatron-Core (``training/arguments.py``), as scripts hold them.

Defaults are those of its command line, as of 0.19.2: what a script leaves out means what Megatron
takes it for.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meshfit.engines.engine_file import EngineFile, UnknownOption, stray_words, unknown_options
from meshfit.engines.megatron.architecture import architecture
from meshfit.engines.megatron.stages import stages
from meshfit.engines.options import OptionTable, option_table
from meshfit.engines.syntax.setting import Setting, Settings
from meshfit.engines.syntax.shell import Script, read_script
from meshfit.errors import InputError
from meshfit.profile import MegatronOptions

LAUNCHER: dict[str, str] = dict.fromkeys(
    ("--nproc_per_node", "--nproc-per-node", "--nnodes", "--node_rank", "--node-rank",
     "--master_addr", "--master-addr", "--master_port", "--master-port", "--rdzv_id", "--rdzv-id",
     "--rdzv_backend", "--rdzv-backend", "--rdzv_endpoint", "--rdzv-endpoint", "--rdzv_conf",
     "--rdzv-conf", "--max_restarts", "--max-restarts", "--tee", "--log_dir", "--log-dir",
     "--redirects", "--role", "--monitor_interval", "--monitor-interval", "--start_method",
     "--start-method", "--local_addr", "--local-addr", "--local_ranks_filter",
     "--local-ranks-filter", "--logs_specs", "--logs-specs", "--event_log_handler",
     "--event-log-handler", "--numa_binding", "--numa-binding", "--signals_to_handle",
     "--signals-to-handle", "--num_gpus", "--num_nodes", "--hostfile", "--include", "--exclude"),
    "one",
) | dict.fromkeys(
    ("--standalone", "--no_python", "--no-python", "--module", "--run_path", "--run-path",
     "--use_env", "--use-env", "--virtual_local_rank", "--virtual-local-rank"),
    "flag",
)  # fmt: skip
"""Options of torchrun and of deepspeed's launcher, which stand in the same command."""

_CP_METHODS = {"p2p": "ring", "a2a": "all_to_all", "allgather": "all_gather"}
_ATTENTION = {"flash": "flash", "fused": "cudnn", "unfused": "unfused", "local": "unfused",
              "auto": "auto"}  # fmt: skip
_FP8_RECIPES = {"delayed": "delayed", "tensorwise": "tensorwise", "blockwise": "blockwise", "mxfp8": "mxfp8"}  # fmt: skip
_OPTIMIZERS = {"adam": "adamw", "sgd": "sgd", "muon": "muon", "dist_muon": "muon"}
_SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}

NOT_IN_ANSWER = (
    "--cpu-offloading-num-layers",
    "--tensor-parallel-num-weight-shards",
    "--hybrid-layer-pattern",
    "--hybrid-override-pattern",
    "--heterogeneous-layers-config-path",
    "--linear-attention-freq",
    "--window-size",
    "--spec",
)
"""Options that change memory or time and that are not predicted from a script."""

MARKS = (
    "--num-layers",
    "--micro-batch-size",
    "--tensor-model-parallel-size",
    "--pipeline-model-parallel-size",
)
"""Options that tell a command that trains."""

_KEYS: dict[str, tuple[str, ...]] = {
    "tp": ("--tensor-model-parallel-size",),
    "pp": ("--pipeline-model-parallel-size",),
    "cp": ("--context-parallel-size",),
    "ep": ("--expert-model-parallel-size",),
    "etp": ("--expert-tensor-parallel-size",),
    "sp": ("--sequence-parallel",),
    "cp_method": ("--cp-comm-type",),
    "vpp": (
        "--num-virtual-stages-per-pipeline-rank",
        "--num-layers-per-virtual-pipeline-stage",
    ),
    "stage_layers": ("--pipeline-model-parallel-layout",),
    "micro_batch_size": ("--micro-batch-size",),
    "recompute": ("--recompute-granularity", "--recompute-activations"),
    "recompute_layers": ("--recompute-num-layers",),
    "zero_stage": ("--data-parallel-sharding-strategy",),
    "dp_shard": ("--use-distributed-optimizer",),
    "dp_replicate": ("--num-distributed-optimizer-instances",),
}
"""Key of a layout -> the options that say it."""


def read(text: str, num_ranks: int | None) -> EngineFile:
    """What a script, or a line of arguments, says.

    Args:
        num_ranks: accelerators, where a person names them; else those of its torchrun line.

    Raises:
        InputError: a number is none, or what it says of the model does not add up.
    """
    table = option_table("megatron")
    script = read_script(text, {**LAUNCHER, **table.values}, MARKS)
    options = Settings([one for one in script.settings if one.name.startswith("--")])
    launcher = [one for one in script.launcher if one.name.startswith("--")]
    if not any(one.name in table.values for one in options.all):
        raise InputError(
            "options of Megatron-LM are in it, but in no command or list that is read; give the command "
            "alone"
        )
    ranks, hosts = started_ranks(script, Settings(launcher), num_ranks)
    file = described(options, ranks, script.variables)
    return replace(
        file,
        form="Megatron-LM arguments",
        num_hosts=hosts,
        settings=tuple(options.all),
        unknown=(
            *_unknown(options, launcher, table),
            *(stray_words(script.positional) if script.has_program else ()),
        ),
        notes=(*left_open(script), *file.notes),
    )


def described(options: Settings, ranks: int | None, variables: Mapping[str, str]) -> EngineFile:
    """What Megatron's options say, by the names of its command line, however a file writes them.

    Args:
        ranks: accelerators, where they are known.
        variables: of the environment.
    """
    notes = (one.name for name in NOT_IN_ANSWER if (one := options.get(name)) is not None)
    return EngineFile(
        engine="megatron",
        form="",
        settings=(),
        num_ranks=ranks,
        model=architecture(options),
        layout=_layout(options, ranks),
        workload=_workload(options),
        runtime=_runtime(options),
        facts=_facts(variables, options),
        notes=tuple(f"{name} is not in this answer" for name in notes),
        megatron=memory_options(options),
    )


def left_open(script: Script) -> tuple[str, ...]:
    """What variables of a script that it does not set leave open."""
    unset = (f"line {one.line}: {one.name} is not set in the file; its" for one in script.left_open)
    return tuple(f"{words} options are not in this answer" for words in unset)


def _unknown(
    options: Settings, launcher: list[Setting], table: OptionTable
) -> tuple[UnknownOption, ...]:
    """Options that Megatron does not know, or the launcher; in a file without a command of either."""
    if all(one in options.all for one in launcher):
        return unknown_options(options.all, table, LAUNCHER)
    launch = OptionTable(source="torchrun", values=LAUNCHER)
    return (*unknown_options(launcher, launch), *unknown_options(options.all, table))


def started_ranks(
    script: Script, launcher: Settings, asked: int | None
) -> tuple[int | None, int | None]:
    """Ranks and hosts: those that torchrun starts, else a WORLD_SIZE that the script sets, else the tasks
    of its Slurm job; ``asked`` goes before them all. None where they are not said."""
    each = launcher.text("--nproc_per_node", "--nproc-per-node", "--num_gpus")
    nodes = launcher.text("--nnodes", "--num_nodes", default="1")
    if not each.isdigit():
        each = script.variables.get("SLURM_GPUS_ON_NODE", "") if each else ""
    if each.isdigit() and nodes.isdigit():
        ranks, hosts = int(each) * int(nodes), int(nodes)
        return asked or ranks, hosts if asked in (None, ranks) else None
    names = ("WORLD_SIZE", "SLURM_NTASKS")
    counts = (script.variables.get(name, "") for name in names)
    found = next((int(count) for count in counts if count.isdigit()), None)
    nodes = script.variables.get("SLURM_NNODES", "")
    return asked or found, int(nodes) if nodes.isdigit() and asked in (None, found) else None


def _layout(options: Settings, ranks: int | None) -> dict[str, Any]:
    degrees = {key: options.count(*_KEYS[key]) for key in ("tp", "pp", "cp", "ep")}
    layout: dict[str, Any] = {
        **degrees,
        "sp": options.is_on("--sequence-parallel"),
        "etp": options.count(*_KEYS["etp"], default=degrees["tp"]) if degrees["ep"] > 1 else 1,
        "micro_batch_size": options.count("--micro-batch-size"),
        **stages(options, degrees["pp"]),
        **_recompute(options),
    }
    method = options.text("--cp-comm-type").split()
    if degrees["cp"] > 1 and method:
        layout["cp_method"] = _CP_METHODS.get(method[0], method[0])
    if options.is_on("--fine-grained-activation-offloading"):
        layout["offload"] = "activations"
    if options.is_on("--optimizer-cpu-offload"):
        layout["offload"] = "cpu"
    if ranks is not None:
        beside = math.prod(degrees[axis] for axis in ("tp", "pp", "cp"))
        layout |= _data_parallel(options, max(1, ranks // beside))
    return layout


def _data_parallel(options: Settings, size: int) -> dict[str, Any]:
    """What data-parallel ranks share: states of the optimizer, Megatron-FSDP's shards, or nothing."""
    stage = 1 if options.is_on("--use-distributed-optimizer") else 0
    if options.is_on("--use-megatron-fsdp"):
        stage = _SHARDING[
            options.choice("--data-parallel-sharding-strategy", _SHARDING, "no_shard")
        ]
    if options.is_on("--use-torch-fsdp2"):
        stage = 3
    if stage == 0:
        return {"dp_replicate": size, "dp_shard": 1, "zero_stage": 0}
    instances = options.count("--num-distributed-optimizer-instances")
    if size % instances:
        raise InputError(
            f"--num-distributed-optimizer-instances {instances} does not divide the {size} "
            f"data-parallel ranks"
        )
    return {"dp_replicate": instances, "dp_shard": size // instances, "zero_stage": stage}


def _recompute(options: Settings) -> dict[str, Any]:
    kind = options.choice("--recompute-granularity", ("full", "selective"), "none")
    if options.is_on("--recompute-activations"):
        kind = "selective"
    if kind == "full":
        method = options.choice("--recompute-method", ("uniform", "block"), "uniform")
        return {
            "recompute": "block" if method == "block" else "full",
            "recompute_layers": options.count("--recompute-num-layers"),
        }
    if kind != "selective":
        return {"recompute": "none"}
    modules = set(options.text("--recompute-modules", default="core_attn").split())
    discards = bool(modules - {"core_attn"}) and "core_attn" not in modules
    return {"recompute": "operations" if discards else "selective"}


def _workload(options: Settings) -> dict[str, Any]:
    workload: dict[str, Any] = {"precision": _precision(options)}
    if (length := options.get("--seq-length", "--encoder-seq-length")) is not None:
        workload["sequence_length"] = length.at_least(1)
    if "--global-batch-size" in options:
        workload["global_batch"] = options.count("--global-batch-size")
    workload["optimizer"] = _OPTIMIZERS[options.predicted("--optimizer", _OPTIMIZERS, "adam")]
    return workload


def _precision(options: Settings) -> str:
    if options.is_on("--bf16") and options.is_on("--fp16"):
        raise InputError("--bf16 and --fp16 exclude each other; keep one")
    if "--fp8-format" in options:
        return "fp8_mixed"
    if options.is_on("--bf16"):
        return "bf16_mixed"
    return "fp16_mixed" if options.is_on("--fp16") else "fp32"


def _runtime(options: Settings) -> dict[str, Any]:
    attention, hidden = (
        options.number(f"--{kind}-dropout", default=0.1) for kind in ("attention", "hidden")
    )
    runtime: dict[str, Any] = {
        "overlap_gradients": options.is_on("--overlap-grad-reduce"),
        "overlap_parameters": options.is_on("--overlap-param-gather"),
        "overlap_tensor_parallel": options.is_on("--tp-comm-overlap"),
        "fused_gradient_accumulation": not options.is_on("--no-gradient-accumulation-fusion"),
        "attention": _ATTENTION[options.choice("--attention-backend", _ATTENTION, "auto")],
        "loss": "fused" if options.is_on("--cross-entropy-loss-fusion") else "plain",
    }
    if attention != hidden:  # else they are the model's own
        runtime |= {"attention_dropout": attention, "hidden_dropout": hidden}
    if "--fp8-format" in options:
        recipe = options.choice("--fp8-recipe", _FP8_RECIPES, "delayed")
        runtime["fp8_recipe"] = _FP8_RECIPES[recipe]
        runtime["fp8_parameters"] = options.is_on("--fp8-param-gather")
    return runtime


def _facts(variables: Mapping[str, str], options: Settings) -> dict[str, Any]:
    """What rules ask of Megatron alone (``mesh.rulebook``)."""
    facts: dict[str, Any] = {
        "overlap_param_gather": options.is_on("--overlap-param-gather"),
        "overlap_grad_reduce": options.is_on("--overlap-grad-reduce"),
        "tp_comm_overlap": options.is_on("--tp-comm-overlap"),
        "torch_fsdp2": options.is_on("--use-torch-fsdp2"),
        "distributed_optimizer": options.is_on("--use-distributed-optimizer"),
        "overlap_moe": options.is_on("--overlap-moe-expert-parallel-comm"),
        "overlap_p2p": not options.is_on("--no-overlap-p2p-communication"),
        "recompute_num_layers": options.whole("--recompute-num-layers", default=0),
        "recompute_method": options.text("--recompute-method", default="none"),
        "embedding_counts_as_layer": options.is_on("--account-for-embedding-in-pipeline-split"),
        "loss_counts_as_layer": options.is_on("--account-for-loss-in-pipeline-split"),
    }
    connections = variables.get("CUDA_DEVICE_MAX_CONNECTIONS", "")
    if connections.isdigit():
        facts["cuda_device_max_connections"] = int(connections)
    sizes = options.text("--hierarchical-context-parallel-sizes").split()
    if sizes and all(size.isdigit() for size in sizes):
        facts["hierarchical_cp"] = math.prod(map(int, sizes))
    return facts


def memory_options(options: Settings) -> MegatronOptions:
    """What memory depends on beyond the layout and the runtime."""
    deferred = options.count("--wgrad-deferral-limit", default=0, least=0) or -1
    return MegatronOptions(
        transformer_engine=options.text("--transformer-impl", default="transformer_engine")
        == "transformer_engine",
        deterministic=options.is_on("--deterministic-mode"),
        fused_softmax=not options.is_on("--no-masked-softmax-fusion"),
        softmax_in_fp32=options.is_on("--attention-softmax-in-fp32")
        or options.is_on("--apply-query-key-layer-scaling"),
        attention_mask=not options.is_on("--no-create-attention-mask-in-dataloader"),
        recompute_modules=tuple(options.text("--recompute-modules", default="core_attn").split()),
        loss_kernel="te" if options.text("--cross-entropy-fusion-impl") == "te" else "native",
        micro_batch_group=options.whole("--microbatch-group-size-per-virtual-pipeline-stage"),
        overlap_pipeline_exchange=not options.is_on("--no-overlap-p2p-communication"),
        deferred_head_gradients=deferred if options.is_on("--defer-embedding-wgrad-compute") else 0,
        distributed_checkpoints=options.is_on("--distribute-saved-activations"),
        grouped_experts=options.is_on("--moe-grouped-gemm"),
        expert_capacity_factor=options.number("--moe-expert-capacity-factor"),
    )
