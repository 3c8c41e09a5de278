"""Accelerate's YAML, as ``accelerate config`` writes it."""

import math
from collections.abc import Mapping
from typing import Any

from meshfit.engines.engine_file import EngineFile, unknown_options
from meshfit.engines.options import option_table
from meshfit.engines.syntax.blocks import read_yaml
from meshfit.engines.syntax.setting import Settings

_PARALLELISM = "parallelism_config.parallelism_config_"

_KEYS: Mapping[str, tuple[str, ...]] = {
    "dp_replicate": (f"{_PARALLELISM}dp_replicate_size",),
    "dp_shard": (f"{_PARALLELISM}dp_shard_size",),
    "tp": (f"{_PARALLELISM}tp_size",),
    "cp": (f"{_PARALLELISM}cp_size", f"{_PARALLELISM}sp_size"),
    "zero_stage": (
        "fsdp_config.fsdp_reshard_after_forward",
        "fsdp_config.fsdp_sharding_strategy",
        "deepspeed_config.zero_stage",
    ),
    "recompute": ("fsdp_config.fsdp_activation_checkpointing",),
    "offload": ("fsdp_config.fsdp_offload_params", "deepspeed_config.offload_optimizer_device"),
}
"""Key of a layout -> the options that say it."""

_STRATEGIES = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3,
               "HYBRID_SHARD_ZERO2": 2, "1": 3, "2": 2, "3": 0, "4": 3, "5": 2}  # fmt: skip
_CP_STRATEGIES = {"allgather": "all_gather", "alltoall": "all_to_all"}


def read(text: str, num_ranks: int | None) -> EngineFile:
    """What the file says. It names no model, no sequence length and no batch.

    Raises:
        InputError: no YAML, or a number is none.
    """
    settings = read_yaml(text)
    options = Settings(settings)
    ranks = num_ranks or options.whole("num_processes")
    return EngineFile(
        engine="accelerate",
        form="Accelerate YAML",
        settings=tuple(settings),
        unknown=unknown_options(settings, option_table("accelerate")),
        num_ranks=ranks,
        layout=_layout(options, ranks),
        workload={"precision": _precision(options)},
    )


def _precision(options: Settings) -> str:
    asked = options.text("mixed_precision", default="no").lower()
    return {"bf16": "bf16_mixed", "fp16": "fp16_mixed", "fp8": "fp8_mixed"}.get(asked, "fp32")


def _layout(options: Settings, ranks: int | None) -> dict[str, Any]:
    cp = options.whole(f"{_PARALLELISM}cp_size", default=1) or 1
    sp = options.whole(f"{_PARALLELISM}sp_size", default=1) or 1
    layout: dict[str, Any] = {"tp": options.whole(*_KEYS["tp"], default=1) or 1, "cp": cp * sp}
    if layout["cp"] > 1:
        strategy = options.text(f"{_PARALLELISM}cp_comm_strategy")
        if sp > 1 or strategy:
            layout["cp_method"] = "all_to_all" if sp > 1 else _CP_STRATEGIES.get(strategy, strategy)
    layout |= _data_parallel(options, ranks, layout["tp"] * layout["cp"])
    if options.is_on("fsdp_config.fsdp_activation_checkpointing"):
        layout["recompute"] = "full"
    if options.is_on("fsdp_config.fsdp_offload_params") or options.text(
        "deepspeed_config.offload_optimizer_device"
    ) in ("cpu", "nvme"):
        layout["offload"] = "cpu"
    return layout


def _data_parallel(options: Settings, ranks: int | None, beside: int) -> dict[str, Any]:
    """Sizes of its own where the file names them; else all ranks left, sharded where FSDP or
    DeepSpeed's ZeRO is asked for."""
    stage = _stage(options)
    replicas = options.whole(*_KEYS["dp_replicate"])
    shards = options.whole(*_KEYS["dp_shard"])
    if replicas is None and shards is None:
        if ranks is None:
            return {}
        left = max(1, ranks // beside)
        shards, replicas = (left, 1) if stage else (1, left)
    sizes = {"dp_replicate": replicas or 1, "dp_shard": shards or 1}
    return {
        **sizes,
        "zero_stage": stage if math.prod(sizes.values()) > 1 and sizes["dp_shard"] > 1 else 0,
    }


def _stage(options: Settings) -> int:
    kind = options.text("distributed_type", default="NO").upper()
    if kind == "DEEPSPEED":
        return options.whole("deepspeed_config.zero_stage", default=2) or 0
    if kind != "FSDP":
        return 0
    if options.text("fsdp_config.fsdp_version", default="1") == "2":
        return 3 if options.is_on("fsdp_config.fsdp_reshard_after_forward", default=True) else 2
    strategy = options.text("fsdp_config.fsdp_sharding_strategy", default="FULL_SHARD")
    return _STRATEGIES.get(strategy.upper(), 3)
