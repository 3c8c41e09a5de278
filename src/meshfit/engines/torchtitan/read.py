"""Configurations of torchtitan: its older TOML, and the Python function of 0.3.

The function is read by its syntax tree and never run: the registry's function that it starts from, and
every field that it sets to something written out.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from meshfit.engines.engine_file import EngineFile, unknown_options
from meshfit.engines.options import OptionTable, option_table
from meshfit.engines.syntax.blocks import read_toml
from meshfit.engines.syntax.python_config import PythonConfig, read_python
from meshfit.engines.syntax.setting import Settings
from meshfit.engines.torchtitan.write import SCHEDULES

MODELS: Mapping[tuple[str, str], str] = {
    ("llama3", "8B"): "llama-3.1-8b",
    ("llama3", "70B"): "llama-3.1-70b",
    ("llama3", "405B"): "llama-3.1-405b",
    ("deepseek_v3", "671B"): "deepseek-v3",
    ("deepseek_v3", "16B"): "deepseek-v2-lite",
}
"""Name and flavour of torchtitan's registry -> model of the catalogue."""

_KEYS: Mapping[str, tuple[str, ...]] = {
    "dp_replicate": ("parallelism.data_parallel_replicate_degree",),
    "dp_shard": ("parallelism.data_parallel_shard_degree",),
    "tp": ("parallelism.tensor_parallel_degree",),
    "sp": ("parallelism.enable_sequence_parallel",),
    "cp": ("parallelism.context_parallel_degree",),
    "pp": ("parallelism.pipeline_parallel_degree",),
    "schedule": ("parallelism.pipeline_parallel_schedule",),
    "vpp": ("parallelism.pipeline_parallel_layers_per_stage",),
    "ep": ("parallelism.expert_parallel_degree",),
    "zero_stage": ("parallelism.fsdp_reshard_after_forward",),
    "micro_batch_size": (
        "parallelism.pipeline_parallel_microbatch_size",
        "training.local_batch_size",
    ),
    "recompute": ("activation_checkpoint.mode", "activation_checkpoint"),
    "recompute_layers": ("activation_checkpoint.selective_ac_option",),
    "offload": ("training.enable_cpu_offload",),
}
"""Key of a layout -> the options that say it."""

_TOML_ONLY = (
    "job", "profiling", "metrics", "model", "optimizer", "lr_scheduler", "training", "parallelism",
    "checkpoint", "activation_checkpoint", "float8", "mx", "compile", "quantize", "memory_estimation",
    "fault_tolerance", "experimental", "comm", "validation", "debug",
)  # fmt: skip
"""Tables of the TOML that the Python configuration no longer has, or has as objects."""

_SEVERAL_STAGES = frozenset(SCHEDULES) - {"gpipe", "1f1b"}
"""Schedules of several stages a rank; two, where a file does not say how many layers each has."""


def read_toml_file(text: str, num_ranks: int | None) -> EngineFile:
    """What the TOML says. Tables that 0.3 no longer has are not looked into."""
    options = Settings(read_toml(text))
    table = option_table("torchtitan")
    older = dict.fromkeys(_TOML_ONLY, "one") | {"parallelism": "block", "training": "block"}
    known = OptionTable(source=table.source, values={**table.values, **older})
    name = (options.text("model.name"), options.text("model.flavor"))
    return _file(options, known, num_ranks, MODELS.get(name), "torchtitan TOML")


def read_python_file(text: str, num_ranks: int | None) -> EngineFile:
    """What the configuration function says.

    Raises:
        InputError: no such function, or several.
    """
    found = read_python(text)
    options = Settings(list(found.settings))
    return _file(
        options,
        option_table("torchtitan"),
        num_ranks,
        _of_registry(found),
        "torchtitan configuration function",
    )


def _of_registry(config: PythonConfig) -> str | None:
    """The model of the registry's function that it starts from (``llama3_8b``)."""
    name = re.sub(r"[^a-z0-9]", "", (config.base or "").lower())
    return next(
        (model for (family, flavor), model in MODELS.items()
         if name.startswith(re.sub(r"[^a-z0-9]", "", family + flavor.lower()))),
        None,
    )  # fmt: skip


def _file(
    options: Settings, table: OptionTable, num_ranks: int | None, model: str | None, form: str
) -> EngineFile:
    layout = _layout(options, num_ranks)
    return EngineFile(
        engine="torchtitan",
        form=form,
        settings=tuple(options.all),
        unknown=unknown_options(options.all, table),
        num_ranks=num_ranks,
        model=model,
        layout=layout,
        workload=_workload(options, layout),
        runtime=_runtime(options),
        facts={"cuda_graphs": not options.is_on("training.disable_cuda_graphs")},
    )


def _layout(options: Settings, ranks: int | None) -> dict[str, Any]:
    axes = ("dp_replicate", "tp", "cp", "pp", "ep")
    degrees = {axis: options.whole(*_KEYS[axis], default=1) or 1 for axis in axes}
    layout: dict[str, Any] = {
        **degrees,
        "sp": degrees["tp"] > 1
        and options.is_on(*_KEYS["sp"], default=True)
        and not options.is_on("parallelism.disable_sequence_parallel"),
        "micro_batch_size": options.whole(*_micro_batch(degrees["pp"]), default=1),
        **_recompute(options),
    }
    shard = options.whole(*_KEYS["dp_shard"], default=-1) or -1
    if shard == -1 and ranks is not None:
        beside = math.prod(degrees[axis] for axis in ("dp_replicate", "tp", "cp", "pp"))
        shard = max(1, ranks // beside)
    if shard > 0:
        layout["dp_shard"] = shard
        layout["zero_stage"] = _zero_stage(options, shard, degrees["pp"])
    if options.is_on(*_KEYS["offload"]):
        layout["offload"] = "cpu"
    if degrees["pp"] > 1:
        layout |= _pipeline(options)
    return layout


def _micro_batch(pp: int) -> tuple[str, ...]:
    """Where the size of a micro-batch stands: a pipeline cuts the local batch, others take it whole."""
    return _KEYS["micro_batch_size"] if pp > 1 else ("training.local_batch_size",)


def _zero_stage(options: Settings, shard: int, pp: int) -> int:
    if shard == 1:
        return 0
    policy = options.text(*_KEYS["zero_stage"], default="default")
    if policy == "default":
        return 2 if pp > 1 else 3
    return {"always": 3, "never": 2}.get(policy, 3)


def _pipeline(options: Settings) -> dict[str, Any]:
    asked = options.text(*_KEYS["schedule"], default="1F1B")
    ours = {theirs.lower(): name for name, theirs in SCHEDULES.items()}
    schedule = ours.get(asked.lower(), asked)
    return {"schedule": schedule, "vpp": 2 if schedule in _SEVERAL_STAGES else 1}


def _recompute(options: Settings) -> dict[str, Any]:
    mode = options.text("activation_checkpoint.mode", "activation_checkpoint", default="none")
    kind = mode.removesuffix("AC.Config").lower() if mode.endswith(".Config") else mode.lower()
    if kind != "selective":
        return {"recompute": "full" if kind == "full" else "none"}
    option = options.text("activation_checkpoint.selective_ac_option", default="op")
    if option.isdigit() and int(option) > 0:
        return {"recompute": "alternate", "recompute_layers": int(option)}
    return {"recompute": "operations"}


def _workload(options: Settings, layout: Mapping[str, Any]) -> dict[str, Any]:
    workload: dict[str, Any] = {"precision": "bf16_mixed", "optimizer": "adamw"}
    if (length := options.whole("training.seq_len")) is not None:
        workload["sequence_length"] = length
    batch = options.whole("training.global_batch_size", default=-1)
    if batch is not None and batch < 1 and "dp_shard" in layout:
        local = options.whole("training.local_batch_size", default=1) or 1
        batch = local * layout["dp_replicate"] * layout["dp_shard"]
    if batch is not None and batch > 0:
        workload["global_batch"] = batch
    if options.text("training.mixed_precision_param") == "float32":
        workload["precision"] = "fp32"
    return workload


def _runtime(options: Settings) -> dict[str, Any]:
    runtime: dict[str, Any] = {}
    if (compiled := options.get("compile.enable", "training.compile")) is not None:
        runtime["compile"] = compiled.is_on()
    if options.is_on("compile.enable_async_tensor_parallel"):
        runtime["overlap_tensor_parallel"] = True
    return runtime
