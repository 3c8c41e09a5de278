"""DeepSpeed's JSON."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from meshfit.engines.deepspeed.write import GRADIENT_BYTES
from meshfit.engines.engine_file import EngineFile, require_blocks, unknown_options
from meshfit.engines.options import option_table
from meshfit.engines.syntax.blocks import read_json, read_json_with_comments
from meshfit.engines.syntax.setting import Setting, Settings
from meshfit.errors import InputError

_OPTIMIZERS = {
    "adam": "adamw",
    "adamw": "adamw",
    "fusedadam": "adamw",
    "sgd": "sgd",
    "muon": "muon",
}

AUTO = "auto"
"""What Hugging Face's Trainer fills in from its own arguments."""

STAGES = ("0", "1", "2", "3")
_DEVICES = ("none", "cpu", "nvme")

_NOT_IN_ANSWER = (
    "zero_optimization.zero_hpz_partition_size",
    "zero_optimization.zero_quantized_weights",
    "zero_optimization.zero_quantized_gradients",
    "torch_autocast",
    "autotuning.enabled",
    "compile.deepcompile",
    "expert_parallel.enabled",
    "hybrid_engine.enabled",
    "pipeline",
    "weight_quantization",
)
"""Options that change memory and time and that no layout has."""


def read(text: str, num_ranks: int | None) -> EngineFile:
    """What the file says. It names no model and no sequence length.

    Raises:
        InputError: no JSON, a number is none, or a value or a batch that DeepSpeed refuses.
    """
    settings, spoken = _settings(text)
    table = option_table("deepspeed")
    require_blocks(settings, table)
    autos = frozenset(one.name for one in settings if one.value == AUTO)
    options = Settings([one for one in settings if one.value is not None and one.value != AUTO])
    if autos & {"zero_optimization.stage"}:
        raise InputError(
            "zero_optimization.stage is auto, which nothing fills in; write 0, 1, 2 or 3"
        )
    layout = _layout(options, num_ranks)
    layout |= _micro_batch(options, layout, autos)
    precision, notes = _precision(options, autos)
    return EngineFile(
        engine="deepspeed",
        form="DeepSpeed JSON",
        settings=tuple(settings),
        unknown=unknown_options(settings, table),
        num_ranks=num_ranks,
        layout=layout,
        workload=_workload(options, precision),
        runtime=_runtime(options),
        facts=_facts(options),
        accumulation=options.count("gradient_accumulation_steps"),
        notes=(*spoken, *notes, *_notes(options, autos)),
    )


def _settings(text: str) -> tuple[list[Setting], tuple[str, ...]]:
    """Those of the file, and a note where they are no plain JSON: DeepSpeed reads Hjson.

    Raises:
        InputError: they are neither.
    """
    try:
        return read_json(text), ()
    except InputError as error:
        try:
            settings = read_json_with_comments(text)
        except InputError:
            raise error from None
        return settings, (f"{error}: DeepSpeed reads it even so, Hugging Face's Trainer does not",)


def _layout(options: Settings, ranks: int | None) -> dict[str, Any]:
    tp = max(1, options.count("tensor_parallel.autotp_size", default=0, least=0))
    cp = options.count("sequence_parallel_size")
    layout: dict[str, Any] = {"tp": tp, "cp": cp}
    stage = int(options.choice("zero_optimization.stage", STAGES, "0"))
    if _offloads(options, stage):
        layout["offload"] = "cpu"
    if ranks is not None:
        size = max(1, ranks // (tp * cp))
        layout |= (
            {"dp_shard": size, "dp_replicate": 1, "zero_stage": stage}
            if stage
            else {"dp_replicate": size, "dp_shard": 1, "zero_stage": 0}
        )
    return layout


def _offloads(options: Settings, stage: int) -> bool:
    """Whether states go to the host: the optimizer's from stage 1 on, parameters at stage 3."""
    return any(least <= stage for _, least in _offloading(options))


def _offloading(options: Settings) -> Iterator[tuple[Setting, int]]:
    """Settings that ask for it, each with the least stage at which DeepSpeed does it."""
    for what, least in (("optimizer", 1), ("param", 3)):
        name = f"zero_optimization.offload_{what}.device"
        found = options.get(name)
        if found is not None and options.choice(name, _DEVICES, "none") != "none":
            yield found, least
    for name, least in (("cpu_offload", 1), ("cpu_offload_param", 3)):
        found = options.get(f"zero_optimization.{name}")
        if found is not None and found.is_on():
            yield found, least


def _micro_batch(
    options: Settings, layout: Mapping[str, Any], autos: frozenset[str]
) -> dict[str, int]:
    """The micro-batch that is stated, or that is left of the whole batch.

    Raises:
        InputError: neither is there, or the ranks cannot share the batch.
    """
    if "train_micro_batch_size_per_gpu" in options:
        return {"micro_batch_size": options.count("train_micro_batch_size_per_gpu")}
    if "train_batch_size" not in options:
        if autos & {"train_micro_batch_size_per_gpu", "train_batch_size"}:
            return {}
        raise InputError("train_batch_size or train_micro_batch_size_per_gpu must be set")
    if "dp_shard" not in layout:
        return {}
    batch, steps = options.count("train_batch_size"), options.count("gradient_accumulation_steps")
    ranks = layout["dp_shard"] * layout["dp_replicate"]
    if batch % (ranks * steps):
        raise InputError(
            f"train_batch_size {batch} is no multiple of {ranks} data-parallel ranks times "
            f"gradient_accumulation_steps {steps}"
        )
    return {"micro_batch_size": batch // (ranks * steps)}


def _precision(options: Settings, autos: frozenset[str]) -> tuple[str, tuple[str, ...]]:
    """The precision, and a note where the Trainer's arguments decide it."""
    bf16 = options.is_on("bf16.enabled", "bfloat16.enabled")
    fp16 = options.is_on("fp16.enabled")
    if bf16 and fp16:
        raise InputError("bf16 and fp16 are both enabled, which DeepSpeed refuses; keep one")
    if bf16 or fp16:
        return ("bf16_mixed" if bf16 else "fp16_mixed"), ()
    for name in ("bf16", "fp16"):
        if f"{name}.enabled" in autos:
            return f"{name}_mixed", (f"{name}.enabled is auto: taken as true",)
    return "fp32", ()


def _notes(options: Settings, autos: frozenset[str]) -> list[str]:
    notes = [
        f"{name} is not in this answer"
        for name in _NOT_IN_ANSWER
        if name in options and options.text(name) not in ("1", "False")
    ]
    stage = int(options.choice("zero_optimization.stage", STAGES, "0"))
    notes += [
        f"line {one.line}: {one.name} {one.value} does nothing at stage {stage}; from {least} on it does"
        for one, least in _offloading(options)
        if stage < least
    ]
    inner = options.get("tensor_parallel.tp.tp_size")
    if inner is not None and inner.at_least(1) > 1 and "tensor_parallel.autotp_size" not in options:
        notes.append(f"line {inner.line}: {inner.name} does nothing without autotp_size")
    if "activation_checkpointing" in options:
        notes.append(
            "activation_checkpointing says how the program checkpoints, not that it does; "
            "--layout recompute=full does"
        )
    if "train_micro_batch_size_per_gpu" in autos and "train_batch_size" not in options:
        notes.append("train_micro_batch_size_per_gpu is auto: 1, or --micro-batch-size")
    return notes


def _workload(options: Settings, precision: str) -> dict[str, Any]:
    workload: dict[str, Any] = {"precision": precision}
    if (found := options.get("optimizer.type")) is not None:
        named = Settings([replace(found, value=str(found.value).lower())])
        workload["optimizer"] = _OPTIMIZERS[named.predicted("optimizer.type", _OPTIMIZERS, "adam")]
    if "train_batch_size" in options:
        workload["global_batch"] = options.count("train_batch_size")
    return workload


def _runtime(options: Settings) -> dict[str, Any]:
    runtime: dict[str, Any] = {}
    if (overlaps := options.get("zero_optimization.overlap_comm")) is not None:
        runtime["overlap_gradients"] = overlaps.is_on()
    bucket = options.number("zero_optimization.reduce_bucket_size")
    if bucket is not None and bucket >= 1:
        runtime["bucket"] = int(bucket) * GRADIENT_BYTES
    return runtime


def _facts(options: Settings) -> dict[str, Any]:
    name = "gradient_accumulation_steps"
    return {name: options.count(name)} if name in options else {}
