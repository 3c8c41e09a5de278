"""Configurations of torchtitan: its older TOML, and the Python function of 0.3.

The function is read by its syntax tree and never run: the registry's function that it starts from, and
every field that it sets to something written out.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from meshfit.engines.engine_file import EngineFile, require_blocks, unknown_options
from meshfit.engines.options import OptionTable, option_table
from meshfit.engines.syntax.blocks import read_toml
from meshfit.engines.syntax.python_config import PythonConfig, read_python
from meshfit.engines.syntax.setting import Setting, Settings
from meshfit.engines.torchtitan.registry import FLOAT8, REGISTRY, TRAINER
from meshfit.engines.torchtitan.write import SCHEDULES
from meshfit.errors import InputError, shown

MODELS: Mapping[tuple[str, str], str] = {
    ("llama3", "8B"): "llama-3.1-8b",
    ("llama3", "70B"): "llama-3.1-70b",
    ("llama3", "405B"): "llama-3.1-405b",
    ("deepseek_v3", "671B"): "deepseek-v3",
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

_TOML_KEYS = (
    "parallelism.disable_loss_parallel", "parallelism.enable_async_tensor_parallel",
    "parallelism.enable_compiled_autograd", "parallelism.expert_tensor_parallel_degree",
    "parallelism.expert_parallel_comm_backend", "parallelism.context_parallel_rotate_method",
    "parallelism.pipeline_parallel_split_points", "training.dataset", "training.dataset_path",
    "training.seed", "training.deterministic", "training.debug_moe_force_load_balance",
    "training.compile", "training.data_parallel_type",
)  # fmt: skip
"""Keys of it that 0.3 no longer has."""

_SEVERAL_STAGES = frozenset(SCHEDULES) - {"gpipe", "1f1b"}
"""Schedules of several stages a rank; two, where a file does not say how many layers each has."""


def read_toml_file(text: str, num_ranks: int | None) -> EngineFile:
    """What the TOML says. Tables that 0.3 no longer has are not looked into."""
    settings = read_toml(text)
    require_blocks(
        settings,
        OptionTable(source="", values=dict.fromkeys(_TOML_ONLY, "block")),
    )
    options = Settings(settings)
    table = option_table("torchtitan")
    older = dict.fromkeys(_TOML_ONLY, "one") | {"parallelism": "block", "training": "block"}
    older |= dict.fromkeys(_TOML_KEYS, "one")
    known = OptionTable(source=table.source, values={**table.values, **older})
    name = (options.text("model.name"), options.text("model.flavor"))
    float8 = [one.name for one in settings if one.name in ("float8", "mx", "quantize")]
    notes = tuple(f"[{name}] is not in this answer" for name in float8)
    model = MODELS.get(name)
    return _file(options, options.all, known, num_ranks, model, form="torchtitan TOML", notes=notes)


def read_python_file(text: str, num_ranks: int | None) -> EngineFile:
    """What the configuration function says.

    Raises:
        InputError: no such function, or several.
    """
    table = option_table("torchtitan")
    found = read_python(text, [name for name, kind in table.values.items() if kind == "block"])
    base = (found.base or "").rpartition(".")[2]
    default = {**TRAINER, **REGISTRY.get(base, {})}
    defaults = [Setting(name=name, value=value, line=1) for name, value in default.items()]
    is_known = base in REGISTRY or found.base == "Trainer.Config"
    notes = () if is_known else (f"what {found.base}() sets of its own is not in this answer",)
    if base == FLOAT8:
        notes = (f"{base}() trains in float8, which is not in this answer",)
    return _file(
        Settings([*defaults, *found.settings]),
        list(found.settings),
        table,
        num_ranks,
        _of_registry(found),
        form="torchtitan configuration function",
        notes=notes,
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
    options: Settings,
    stated: list[Setting],
    table: OptionTable,
    num_ranks: int | None,
    model: str | None,
    *,
    form: str,
    notes: tuple[str, ...],
) -> EngineFile:
    """``stated`` are the options of the file itself, ``options`` also what they start from."""
    layout = _layout(options, num_ranks)
    return EngineFile(
        engine="torchtitan",
        form=form,
        settings=tuple(stated),
        unknown=unknown_options(stated, table),
        num_ranks=num_ranks,
        model=model,
        layout=layout,
        workload=_workload(options),
        runtime=_runtime(options),
        accumulation=options.count("training.local_batch_size") // layout["micro_batch_size"],
        notes=(*notes, *_notes(options)),
        facts={"cuda_graphs": not options.is_on("training.disable_cuda_graphs")},
    )


def _layout(options: Settings, ranks: int | None) -> dict[str, Any]:
    axes = ("dp_replicate", "tp", "cp", "pp", "ep")
    degrees = {axis: options.count(*_KEYS[axis]) for axis in axes}
    layout: dict[str, Any] = {
        **degrees,
        "sp": degrees["tp"] > 1
        and options.is_on(*_KEYS["sp"], default=True)
        and not options.is_on("parallelism.disable_sequence_parallel"),
        "micro_batch_size": _micro_batch(options, degrees["pp"]),
        **_recompute(options),
    }
    shard = options.count(*_KEYS["dp_shard"], default=-1, least=-1)
    if shard == 0:
        raise InputError(f"{_KEYS['dp_shard'][0]} 0 is not allowed; -1 or at least 1 is")
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


def _micro_batch(options: Settings, pp: int) -> int:
    """Sequences of a forward: a pipeline cuts the local batch, others take it whole.

    Raises:
        InputError: a pipeline's do not divide the local batch.
    """
    local = options.count("training.local_batch_size")
    if pp == 1:
        return local
    cut = options.count("parallelism.pipeline_parallel_microbatch_size")
    if local % cut:
        raise InputError(
            f"training.local_batch_size {local} is no multiple of "
            f"parallelism.pipeline_parallel_microbatch_size {cut}"
        )
    return cut


def _zero_stage(options: Settings, shard: int, pp: int) -> int:
    if shard == 1:
        return 0
    policy = options.choice(_KEYS["zero_stage"][0], ("default", "always", "never"), "default")
    if policy == "default":
        return 2 if pp > 1 else 3
    return 3 if policy == "always" else 2


def _pipeline(options: Settings) -> dict[str, Any]:
    asked = options.text(*_KEYS["schedule"], default="1F1B")
    ours = {theirs.lower(): name for name, theirs in SCHEDULES.items()}
    schedule = ours.get(asked.lower(), asked)
    return {"schedule": schedule, "vpp": 2 if schedule in _SEVERAL_STAGES else 1}


def _recompute(options: Settings) -> dict[str, Any]:
    """Of the TOML's ``mode``, or of the object (``SelectiveAC.Config()``) that 0.3 has.

    Raises:
        InputError: it is none that is predicted.
    """
    found = options.get("activation_checkpoint.mode", "activation_checkpoint")
    if found is None or found.value is None or isinstance(found.value, dict):
        return {"recompute": "none"}
    kind = str(found.value).removesuffix("AC.Config").rpartition(".")[2].lower()
    if kind not in ("none", "full", "selective"):
        raise InputError(
            f"line {found.line}: {found.name} {shown(found.value)} is not predicted; none, full and "
            f"selective are"
        )
    if kind != "selective":
        return {"recompute": kind}
    option = options.text("activation_checkpoint.selective_ac_option", default="op")
    if option.isdigit() and int(option) > 0:
        return {"recompute": "alternate", "recompute_layers": int(option)}
    if option != "op":
        raise InputError(
            f"selective_ac_option {shown(option)} is neither op nor a number of layers"
        )
    return {"recompute": "operations"}


def _workload(options: Settings) -> dict[str, Any]:
    workload: dict[str, Any] = {"precision": _precision(options), "optimizer": "adamw"}
    if (length := options.get("training.seq_len")) is not None:
        workload["sequence_length"] = length.at_least(1)
    if options.text("training.global_batch_size", default="-1") != "-1":
        workload["global_batch"] = options.count("training.global_batch_size")
    return workload


def _precision(options: Settings) -> str:
    """Parameters of bfloat16, or of float32 that are computed with in bfloat16 or float32."""
    types = ("bfloat16", "float32")
    if options.choice("training.dtype", types, "float32") == "bfloat16":
        return "bf16"
    computed = options.choice("training.mixed_precision_param", types, "bfloat16")
    return "bf16_mixed" if computed == "bfloat16" else "fp32"


def _notes(options: Settings) -> list[str]:
    names = (
        "parallelism.pipeline_parallel_layers_per_stage",
        "parallelism.module_fqns_per_model_part",
        "parallelism.pipeline_parallel_schedule_csv",
    )
    return [
        f"{name} is not in this answer"
        for name in names
        if options.text(name, default="None") != "None"
    ]


def _runtime(options: Settings) -> dict[str, Any]:
    runtime: dict[str, Any] = {}
    if (compiled := options.get("compile.enable", "training.compile")) is not None:
        runtime["compile"] = compiled.is_on()
    if options.is_on("compile.enable_async_tensor_parallel"):
        runtime["overlap_tensor_parallel"] = True
    return runtime
