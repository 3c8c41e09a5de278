"""DeepSpeed's JSON."""

from collections.abc import Mapping
from typing import Any

from meshfit.engines.engine_file import EngineFile, unknown_options
from meshfit.engines.options import option_table
from meshfit.engines.syntax.blocks import read_yaml
from meshfit.engines.syntax.setting import Settings

_KEYS: Mapping[str, tuple[str, ...]] = {
    "tp": ("tensor_parallel.autotp_size",),
    "cp": ("sequence_parallel_size",),
    "zero_stage": ("zero_optimization.stage",),
    "micro_batch_size": ("train_micro_batch_size_per_gpu",),
    "offload": ("zero_optimization.offload_optimizer", "zero_optimization.offload_param"),
    "recompute": ("activation_checkpointing",),
    "dp_shard": ("zero_optimization.zero_hpz_partition_size",),
}
"""Key of a layout -> the options that say it."""

_OPTIMIZERS = {
    "adam": "adamw",
    "adamw": "adamw",
    "fusedadam": "adamw",
    "sgd": "sgd",
    "muon": "muon",
}

AUTO = "auto"
"""What Hugging Face's Trainer fills in: as if the key were not there."""


def read(text: str, num_ranks: int | None) -> EngineFile:
    """What the file says. It names no model and no sequence length.

    Raises:
        InputError: no JSON, or a number is none.
    """
    settings = read_yaml(text)
    options = Settings([one for one in settings if one.value != AUTO])
    layout = _layout(options, num_ranks)
    return EngineFile(
        engine="deepspeed",
        form="DeepSpeed JSON",
        settings=tuple(settings),
        unknown=unknown_options(settings, option_table("deepspeed")),
        num_ranks=num_ranks,
        layout=layout,
        workload=_workload(options, layout),
        runtime=_runtime(options),
        facts=_facts(options),
    )


def _layout(options: Settings, ranks: int | None) -> dict[str, Any]:
    tp = options.whole(*_KEYS["tp"], default=1) or 1
    cp = options.whole(*_KEYS["cp"], default=1) or 1
    layout: dict[str, Any] = {"tp": max(1, tp), "cp": max(1, cp)}
    if (size := options.whole(*_KEYS["micro_batch_size"])) is not None:
        layout["micro_batch_size"] = size
    if any(options.text(f"{name}.device") in ("cpu", "nvme") for name in _KEYS["offload"]):
        layout["offload"] = "cpu"
    stage = options.whole(*_KEYS["zero_stage"], default=0) or 0
    if ranks is not None:
        size = max(1, ranks // (layout["tp"] * layout["cp"]))
        layout |= (
            {"dp_shard": size, "dp_replicate": 1, "zero_stage": stage}
            if stage
            else {"dp_replicate": size, "dp_shard": 1, "zero_stage": 0}
        )
    return layout


def _workload(options: Settings, layout: Mapping[str, Any]) -> dict[str, Any]:
    workload: dict[str, Any] = {"precision": "fp32"}
    for name, precision in (("bf16.enabled", "bf16_mixed"), ("fp16.enabled", "fp16_mixed")):
        if options.is_on(name):
            workload["precision"] = precision
    optimizer = options.text("optimizer.type").lower()
    if optimizer:
        workload["optimizer"] = _OPTIMIZERS.get(optimizer, optimizer)
    batch = options.whole("train_batch_size")
    if batch is None and "dp_shard" in layout:
        steps = options.whole("gradient_accumulation_steps", default=1) or 1
        ranks = layout["dp_shard"] * layout["dp_replicate"]
        batch = ranks * steps * layout.get("micro_batch_size", 1)
    if batch is not None:
        workload["global_batch"] = batch
    return workload


def _runtime(options: Settings) -> dict[str, Any]:
    runtime: dict[str, Any] = {}
    if (overlaps := options.get("zero_optimization.overlap_comm")) is not None:
        runtime["overlap_gradients"] = overlaps.is_on()
    bucket = options.number("zero_optimization.reduce_bucket_size")
    if bucket is not None and bucket >= 1:  # counted in elements
        runtime["bucket"] = int(bucket) * 2
    return runtime


def _facts(options: Settings) -> dict[str, Any]:
    steps = options.whole("gradient_accumulation_steps")
    return {} if steps is None else {"gradient_accumulation_steps": steps}
