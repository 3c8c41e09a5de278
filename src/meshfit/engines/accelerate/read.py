"""Accelerate's YAML, as ``accelerate config`` writes it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from meshfit.engines.accelerate.write import CP_STRATEGIES
from meshfit.engines.deepspeed.read import STAGES
from meshfit.engines.engine_file import EngineFile, require_blocks, unknown_options
from meshfit.engines.options import option_table
from meshfit.engines.syntax.blocks import read_yaml
from meshfit.engines.syntax.setting import Setting, Settings
from meshfit.errors import InputError

_SIZES = "parallelism_config.parallelism_config_"
_CP_METHODS = {theirs: ours for ours, theirs in CP_STRATEGIES.items()}
_PRECISIONS = {"no": "fp32", "bf16": "bf16_mixed", "fp16": "fp16_mixed", "fp8": "fp8_mixed"}
_KINDS = ("NO", "MULTI_GPU", "FSDP", "DEEPSPEED")
_KINDS_NOT_PREDICTED = (
    "MULTI_CPU", "MULTI_HPU", "MULTI_MLU", "MULTI_MUSA", "MULTI_NEURON", "MULTI_NPU", "MULTI_SDAA",
    "MULTI_XPU", "MEGATRON_LM", "XLA",
)  # fmt: skip
_ACCUMULATION = "deepspeed_config.gradient_accumulation_steps"
_DEVICES = ("none", "cpu", "nvme")

_STRATEGIES = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3,
               "HYBRID_SHARD_ZERO2": 2, "1": 3, "2": 2, "3": 0, "4": 3, "5": 2}  # fmt: skip
_HYBRID = ("HYBRID_SHARD", "HYBRID_SHARD_ZERO2", "4", "5")

NOT_REWRITTEN = "better layouts are proposed for MULTI_GPU and FSDP 2 alone"


def read(text: str, num_ranks: int | None) -> EngineFile:
    """What the file says. It names no model, no sequence length and no batch.

    Under ``distributed_type: DEEPSPEED`` the engine is DeepSpeed.

    Raises:
        InputError: no YAML, a number is none, or a value is none that Accelerate takes.
    """
    settings = read_yaml(text)
    table = option_table("accelerate")
    require_blocks(settings, table)
    options = Settings([_spelt_out(one) for one in settings])
    options.predicted("compute_environment", ("LOCAL_MACHINE",), "LOCAL_MACHINE")
    _refuse_cpu(options)
    ranks = num_ranks or (options.count("num_processes") if "num_processes" in options else None)
    kind = _kind(options, ranks)
    is_deepspeed = kind == "DEEPSPEED"
    is_auto = options.text(_ACCUMULATION) == "auto"
    rewritten = kind == "MULTI_GPU" or (kind == "FSDP" and _fsdp_version(options) == "2")
    layout = _by_deepspeed(options, ranks) if is_deepspeed else _layout(options, kind, ranks)
    return EngineFile(
        engine="deepspeed" if is_deepspeed else "accelerate",
        form="Accelerate YAML for DeepSpeed" if is_deepspeed else "Accelerate YAML",
        settings=tuple(settings),
        unknown=unknown_options(settings, table),
        num_ranks=ranks,
        num_hosts=options.count("num_machines") if num_ranks is None else None,
        layout=layout,
        workload={"precision": _precision(options)},
        runtime={"compile": True} if _compiles(options) else {},
        accumulation=options.count(_ACCUMULATION) if is_deepspeed and not is_auto else 1,
        notes=tuple(_notes(options, is_rewritten=rewritten, is_auto=is_auto)),
        is_rewritten=rewritten,
    )


def _refuse_cpu(options: Settings) -> None:
    found = options.get("use_cpu")
    if found is not None and found.is_on():
        raise InputError(
            f"line {found.line}: use_cpu true trains on CPU ranks, whatever accelerators there are; "
            f"accelerators need false"
        )


def _compiles(options: Settings) -> bool:
    """Whether Accelerate hands the model to torch.compile."""
    backend = options.text("dynamo_config.dynamo_backend", "dynamo_config.backend", default="NO")
    return backend.upper() not in ("NO", "FALSE", "NONE")  # a bare NO is false to YAML


def _notes(options: Settings, *, is_rewritten: bool, is_auto: bool) -> Iterator[str]:
    if not is_rewritten:
        yield NOT_REWRITTEN
    if is_auto:
        yield f"{_ACCUMULATION} is auto: 1, or --global-batch"
    strategy = options.get("fsdp_config.fsdp_sharding_strategy")
    if strategy is not None and _fsdp_version(options) == "2":
        yield (
            f"line {strategy.line}: fsdp_sharding_strategy {strategy.value} does nothing under fsdp_version 2: "
            f"fsdp_reshard_after_forward says what is sharded"
        )


def _spelt_out(setting: Setting) -> Setting:
    """Keys of ``fsdp_config`` may be without their prefix."""
    block, _, last = setting.name.partition(".")
    if block != "fsdp_config" or not last or last.startswith("fsdp_"):
        return setting
    return replace(setting, name=f"{block}.fsdp_{last}")


def _kind(options: Settings, ranks: int | None) -> str:
    """How ranks share the work; where the file does not say, several are plain replicas."""
    found = options.get("distributed_type")
    if found is None:
        return "MULTI_GPU"
    is_bare_no = found.value is False
    if is_bare_no:
        kind = "NO"
    else:
        options.choice("distributed_type", (*_KINDS, *_KINDS_NOT_PREDICTED), "NO")
        kind = options.predicted("distributed_type", _KINDS, "NO")
    if kind == "NO" and (ranks or 1) > 1:
        raise InputError(
            f"line {found.line}: distributed_type NO runs one process, not {ranks}; MULTI_GPU or FSDP "
            f"runs several"
        )
    return kind


def _precision(options: Settings) -> str:
    found = options.get("mixed_precision")
    if found is None or found.value in (None, False):
        return "fp32"
    return _PRECISIONS[options.choice("mixed_precision", _PRECISIONS, "no")]


def _fsdp_version(options: Settings) -> str:
    return options.choice("fsdp_config.fsdp_version", ("1", "2"), "1")


def _by_deepspeed(options: Settings, ranks: int | None) -> dict[str, Any]:
    _refuse_sizes(options, "DEEPSPEED")
    if (file := options.get("deepspeed_config.deepspeed_config_file")) is not None:
        raise InputError(
            f"line {file.line}: DeepSpeed's settings are in {file.value}: check that file, with "
            f"--gpus {ranks or 'N'}"
        )
    stage = int(options.choice("deepspeed_config.zero_stage", STAGES, "2"))
    layout: dict[str, Any] = {"zero_stage": stage}
    names = [f"deepspeed_config.offload_{what}_device" for what in ("optimizer", "param")]
    if any(options.choice(name, _DEVICES, "none") != "none" for name in names):
        layout["offload"] = "cpu"
    if ranks is not None:
        shards = ranks if stage else 1
        layout |= {"dp_shard": shards, "dp_replicate": ranks // shards}
    return layout


def _layout(options: Settings, kind: str, ranks: int | None) -> dict[str, Any]:
    layout: dict[str, Any] = {}
    if kind == "FSDP" and options.is_on("fsdp_config.fsdp_activation_checkpointing"):
        layout["recompute"] = "full"
    if kind == "FSDP" and options.is_on("fsdp_config.fsdp_offload_params"):
        layout["offload"] = "cpu"
    stage = _stage(options) if kind == "FSDP" else 0
    if kind == "FSDP" and _fsdp_version(options) == "2":
        return layout | _by_sizes(options, stage, ranks)
    _refuse_sizes(options, kind if kind != "FSDP" else "FSDP 1")
    if ranks is not None:
        layout |= _over_all(options, stage, ranks)
    return layout


def _sizes(options: Settings) -> list[Setting]:
    return [one for one in options.all if one.name.startswith(_SIZES)]


def _refuse_sizes(options: Settings, kind: str) -> None:
    if sizes := _sizes(options):
        raise InputError(
            f"line {sizes[0].line}: parallelism_config goes with distributed_type FSDP and "
            f"fsdp_version 2; here it is {kind}"
        )


def _by_sizes(options: Settings, stage: int, ranks: int | None) -> dict[str, Any]:
    """Sizes of the axes, 1 where the block leaves one out; without a block all ranks are shards."""
    if not _sizes(options):
        return {} if ranks is None else _over_all(options, stage, ranks)
    tp, cp, sp, replicas, shards = (
        options.count(f"{_SIZES}{axis}_size")
        for axis in ("tp", "cp", "sp", "dp_replicate", "dp_shard")
    )
    if cp > 1 and sp > 1:
        raise InputError(f"cp_size {cp} and sp_size {sp} of parallelism_config exclude each other")
    strategy = options.choice(f"{_SIZES}cp_comm_strategy", _CP_METHODS, "allgather")
    is_said = cp > 1 and f"{_SIZES}cp_comm_strategy" in options
    method = {"cp_method": _CP_METHODS[strategy]} if is_said else {}
    return {
        "tp": tp,
        "cp": cp * sp,
        **({"cp_method": "all_to_all"} if sp > 1 else method),
        "dp_replicate": replicas,
        "dp_shard": shards,
        "zero_stage": stage if shards > 1 else 0,
    }


def _over_all(options: Settings, stage: int, ranks: int) -> dict[str, Any]:
    """All ranks as data-parallel ones; hybrid strategies shard inside a machine."""
    if not stage or ranks == 1:
        return {"dp_replicate": ranks, "dp_shard": 1, "zero_stage": 0}
    machines = options.count("num_machines") if _strategy(options) in _HYBRID else 1
    if ranks % machines:
        raise InputError(f"num_machines {machines} does not divide num_processes {ranks}")
    return {"dp_replicate": machines, "dp_shard": ranks // machines, "zero_stage": stage}


def _strategy(options: Settings) -> str:
    """That of FSDP 1, which its two keys say; none of version 2."""
    if _fsdp_version(options) == "2":
        return ""
    names = ("fsdp_config.fsdp_sharding_strategy", "fsdp_config.fsdp_reshard_after_forward")
    name = names[0] if names[0] in options else names[1]
    return options.choice(name, _STRATEGIES, "FULL_SHARD")


def _stage(options: Settings) -> int:
    if strategy := _strategy(options):
        return _STRATEGIES[strategy]
    reshards = options.get("fsdp_config.fsdp_reshard_after_forward")
    if reshards is None:
        return 3
    if str(reshards.value).lower() not in ("true", "false"):
        raise InputError(
            f"line {reshards.line}: {reshards.name} {reshards.value} is a strategy of FSDP 1; under "
            f"fsdp_version 2 it is true or false"
        )
    return 3 if reshards.is_on() else 2
