"""A layout as files that train it without meshfit: ``train.py``, ``launch.sh``, ``config.json``.

``templates/train.py.j2`` is one script with a section for each strategy; what the layout does not
use is not in the file. It does what ``meshfit.run`` does, in its order, so that from the same
weights and data both have the same losses to 1e-6 (tests/engines/test_native_files.py runs both).
One thing is done the common way instead: clipping is PyTorch's, whose fp32 norm can differ from the
runner's fp64 one in the last bit. Under bf16 such a bit can round a weight the other way, which
moves later losses by about 1e-5.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import BaseLoader, Environment, PackageLoader, StrictUndefined

from meshfit import __version__
from meshfit.breakdown import Prediction
from meshfit.engines.handover import prediction_line
from meshfit.errors import InputError
from meshfit.mesh.spec import AXES, LayoutSpec
from meshfit.workload.corpus import MAX_TEXT_BYTES
from meshfit.workload.training import DataSpec, TrainingSpec

WRITTEN_FOR: Mapping[str, str] = {"meshfit": __version__, "torch": "2.13", "transformers": "5.24"}
"""What the templates were written and tested against."""

SCRIPT = "launch.sh"
"""What starts the training on one host."""

UNVERIFIED = "unverified: this file has not been run"

_CLASSES: Mapping[str, tuple[str, str]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "mistral": ("MistralConfig", "MistralForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel"),
}
EXPERT_MODEL_TYPES: tuple[str, ...] = ("mixtral", "qwen3_moe", "deepseek_v3")
"""Mixtures of experts: the runner knows them, the exported script does not."""

RUNNABLE_MODEL_TYPES: tuple[str, ...] = (*_CLASSES, *EXPERT_MODEL_TYPES, "phi3")
"""Values of ``model_type`` that the runner knows; its exported script knows ``_CLASSES``."""

_SCHEDULES: Mapping[str, str] = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved_1f1b": "ScheduleInterleaved1F1B",
}
_OPTIMIZERS: Mapping[str, str] = {"adamw": "AdamW", "sgd": "SGD"}


def export(
    layout: LayoutSpec,
    model_config: Mapping[str, Any],
    training: TrainingSpec,
    *,
    weights: str | None,
    steps: int,
    prediction: Prediction | None,
    rank_order: Sequence[str] = AXES,
    device_order: Sequence[int] = (),
    status: str = UNVERIFIED,
) -> dict[str, str]:
    """File name -> text of a plain PyTorch script, its torchrun line and the model's config.

    Args:
        weights: folder of safetensors to start from, a relative one from the script's folder;
            None: the script draws random ones.
        rank_order: axes in the order that ranks are laid in, the outermost first.
        device_order: device of its host that each local rank takes; empty: rank i takes device i.
        status: what is known of this very file, for its header.

    Raises:
        InputError: the script cannot express the layout for this model and batch.
    """
    for refusal in _refusals(layout, model_config, training):
        raise InputError(f"layout {layout.label} cannot be exported: {refusal}")
    values = (
        _values(layout, model_config, training)
        | _mesh_values(layout, rank_order)
        | {
            "weights": quoted(weights) if weights else None,
            "weights_beside_script": weights is not None and not Path(weights).is_absolute(),
            "steps": steps,
            "prediction": prediction_line(prediction),
            "status": status,
            "devices": ",".join(map(str, device_order)),
            "versions": WRITTEN_FOR,
        }
    )
    return {
        "train.py": _environment().get_template("train.py.j2").render(values),
        SCRIPT: _environment().get_template("launch.sh.j2").render(values),
        "config.json": json.dumps(trained_config(model_config), indent=2) + "\n",
    }


def trained_config(model_config: Mapping[str, Any]) -> dict[str, Any]:
    """The config as it is trained: no cache, and no dropout, for ranks would draw other masks."""
    without_dropout = {
        key: 0.0 if "drop" in key and isinstance(value, float) else value
        for key, value in model_config.items()
    }
    return without_dropout | {"use_cache": False}


def data_values(data: DataSpec) -> dict[str, Any]:
    """What ``sequences.py.j2`` asks for."""
    return {
        "data": data,
        "text": data.source == "text",
        "text_path": _text_path(data),
        "max_text_mib": MAX_TEXT_BYTES // 2**20,
    }


def _values(
    layout: LayoutSpec, model_config: Mapping[str, Any], training: TrainingSpec
) -> dict[str, Any]:
    """What the templates ask for: which sections to write, and the names and numbers in them."""
    config_class, class_name = _CLASSES[model_config["model_type"]]
    is_gpt2 = model_config["model_type"] == "gpt2"
    combined = layout.tp > 1 or layout.pp > 1
    ddp = layout.data_parallel_size > 1 and layout.zero_stage <= 1 and not combined
    data_hooks = layout.data_parallel_size > 1 and not ddp
    fsdp = data_hooks and layout.dp_shard > 1
    bf16 = training.precision.name == "bf16_mixed"
    zero1_group = layout.zero_stage == 1 and layout.dp_shard > 1 and layout.dp_replicate > 1
    axes = [axis for axis in AXES if getattr(layout, axis) > 1]
    if ddp and not zero1_group:
        axes = []
    loads_shards = (combined or data_hooks) and not is_gpt2
    num_micro_batches = layout.num_micro_batches(training.global_batch_size)
    stage_layers = layout.layers_of_stages(model_config.get("num_hidden_layers", 0))
    return data_values(training.data) | {
        "label": layout.label,
        "family": layout.family,
        "world_size": layout.world_size,
        "class_name": class_name,
        "config_class": config_class,
        "layers": "model.transformer.h" if is_gpt2 else "model.model.layers",
        "training": training,
        "optimizer_class": _OPTIMIZERS[training.optimizer],
        "fused": training.optimizer == "adamw",  # torch 2.13 has no fused SGD on DTensors
        "clips": training.max_grad_norm is not None,
        "micro_batch_size": layout.micro_batch_size,
        "accumulates": num_micro_batches > 1 and layout.pp == 1,
        "dp_size": layout.data_parallel_size,
        "data_rank": _data_rank(layout, has_mesh=bool(axes)),
        "ddp": ddp,
        "zero1": layout.zero_stage == 1,
        "zero1_group": zero1_group,
        "data_hooks": data_hooks,
        "fsdp": fsdp,
        "hsdp": fsdp and layout.dp_replicate > 1,
        "replicate": data_hooks and not fsdp,
        "zero_stage": layout.zero_stage,
        "data_axes": ", ".join(f'"{axis}"' for axis in axes if axis.startswith("dp_")),
        "fsdp_names": _fsdp_names(fsdp=fsdp, policy=bf16 and data_hooks),
        "bf16": bf16,
        "autocast": bf16 and not data_hooks,
        "tp": layout.tp > 1,
        "sp": layout.sp,
        "qk_norm": model_config["model_type"] == "qwen3",
        "norm_at_end": "parallelize_module(model.model.norm, mesh, SequenceParallel())"
        if layout.sp
        else "replicate_norm(model.model.norm, mesh)",
        "partial_gradients": layout.tp > 1 and layout.data_parallel_size == 1,
        "tensor_names": _tensor_names(layout),
        "dtensors": layout.tp > 1 or data_hooks,
        "pp": layout.pp if layout.pp > 1 else 0,
        "vpp": layout.vpp > 1,
        "schedule_class": _SCHEDULES[layout.schedule],
        "stage_layers": f"({', '.join(map(str, stage_layers))})",
        "recompute": layout.recompute == "full",
        "tied": bool(model_config.get("tie_word_embeddings")),
        "loads_shards": loads_shards,
        "mesh_axes": _tuple([f'"{axis}"' for axis in axes]),
        "takes_mesh": combined or data_hooks,
        "loss_copies": f"(WORLD_SIZE // {layout.pp})" if layout.pp > 1 else "WORLD_SIZE",
    }


def _mesh_values(layout: LayoutSpec, rank_order: Sequence[str]) -> dict[str, str]:
    """The degrees of the mesh, and where ranks lie in another order how to lay them."""
    axes = [axis for axis in AXES if getattr(layout, axis) > 1]
    laid = [axis for axis in rank_order if axis in axes]
    return {
        "mesh_degrees": _degrees(layout, axes),
        "laid_axes": ", ".join(laid) if laid != axes else "",
        "laid_degrees": _degrees(layout, laid),
        "mesh_dims": _tuple([str(laid.index(axis)) for axis in axes]),
    }


def _degrees(layout: LayoutSpec, axes: Sequence[str]) -> str:
    return _tuple([str(getattr(layout, axis)) for axis in axes])


def _refusals(
    layout: LayoutSpec, model_config: Mapping[str, Any], training: TrainingSpec
) -> Iterator[str]:
    """Why the template cannot write this; the rules of the mesh are checked by who calls."""
    if layout.cp > 1 or layout.ep > 1 or layout.etp > 1:
        yield "it has no section for context or expert parallelism; use cp=1, ep=1, etp=1"
    if layout.offload is not None:
        yield f"it has no section for offload={layout.offload}; leave offload out"
    if layout.recompute not in ("none", "full"):
        yield f"recompute is {layout.recompute!r}; use none or full"
    if layout.recompute == "full" and layout.recompute_layers > 1:
        yield f"recompute_layers={layout.recompute_layers}: it recomputes layer by layer; use 1"
    if layout.schedule not in _SCHEDULES:
        yield f"schedule is {layout.schedule!r}; use one of {', '.join(_SCHEDULES)}"
    if layout.pp > 1 and (layout.vpp > 1) != (layout.schedule == "interleaved_1f1b"):
        yield "vpp above 1 and schedule=interleaved_1f1b only go together"
    if (layout.dp_shard > 1) != (layout.zero_stage > 0):
        yield f"zero_stage={layout.zero_stage} with dp_shard={layout.dp_shard}; use 0 without shards, else 1, 2 or 3"
    if (layout.tp > 1 or layout.pp > 1) and layout.zero_stage == 1:
        yield "zero_stage=1 runs with data parallelism only; use 3, or tp=1 and pp=1"
    yield from _refusals_of_model(layout, model_config)
    if training.optimizer not in _OPTIMIZERS:
        yield f"optimizer is {training.optimizer}; use one of {', '.join(_OPTIMIZERS)}"
    if training.adapter is not None:
        yield "it has no section for adapters; use workload.method full"
    if training.data.source == "documents":
        yield "it has no section for packed documents; use data.source text"
    sequences = layout.data_parallel_size * layout.micro_batch_size
    if training.global_batch_size % sequences:
        yield (
            f"global_batch_size={training.global_batch_size} is no multiple of data-parallel ranks"
            f" x micro_batch_size = {layout.data_parallel_size} x {layout.micro_batch_size}"
        )


def _refusals_of_model(layout: LayoutSpec, model_config: Mapping[str, Any]) -> Iterator[str]:
    """Where the template divides a model less well than the runner."""
    model_type = model_config.get("model_type")
    if model_type not in _CLASSES:
        yield f"model_type is {model_type!r}; the script knows {', '.join(_CLASSES)}"
    if (layout.tp > 1 or layout.pp > 1) and model_type == "gpt2":
        yield "GPT-2 runs data parallel only; use tp=1 and pp=1"
    if layout.pp > 1 and model_config.get("tie_word_embeddings"):
        yield "tie_word_embeddings would need one weight on the first and the last stage; use pp=1"
    for name in ("num_key_value_heads", "vocab_size"):
        if (model_config.get(name) or layout.tp) % layout.tp:
            yield f"tp={layout.tp} does not divide {name}={model_config[name]}; use a divisor of it"


def _data_rank(layout: LayoutSpec, *, has_mesh: bool) -> str:
    """Which share of the global batch a rank takes, as an expression."""
    if not has_mesh:
        return "dist.get_rank()"
    replica, shard = 'mesh.get_local_rank("dp_replicate")', 'mesh.get_local_rank("dp_shard")'
    if layout.dp_replicate > 1 and layout.dp_shard > 1:
        return f"({replica} * {layout.dp_shard} + {shard})"
    return replica if layout.dp_replicate > 1 else shard


def _fsdp_names(*, fsdp: bool, policy: bool) -> str:
    return ", ".join(["MixedPrecisionPolicy"] * policy + ["fully_shard"] * fsdp)


def _tensor_names(layout: LayoutSpec) -> str:
    if layout.tp == 1:
        return ""
    if not layout.sp:
        return "DTensor, Replicate, distribute_module"
    return "DTensor, Replicate, Shard" if layout.pp > 1 else "Replicate, Shard"


def _text_path(data: DataSpec) -> str:
    """Python for the path of the text; the running Python's own library is looked up there."""
    if not data.path:
        return ""
    before, found, after = data.path.partition("${stdlib}")
    if not found:
        return quoted(data.path)
    parts = [quoted(before)] * bool(before) + ['sysconfig.get_path("stdlib")']
    return " + ".join(parts + [quoted(after)] * bool(after))


def _tuple(items: list[str]) -> str:
    if not items:
        return ""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def quoted(text: str) -> str:
    """A Python string literal in double quotes, where it can be."""
    plain = json.dumps(text, ensure_ascii=False)
    return plain if plain.isprintable() else ascii(text)


@cache
def _environment() -> Environment:
    return environment(PackageLoader("meshfit.engines.native"))


def environment(loader: BaseLoader) -> Environment:
    """Of templates for Python and shell, into which strings go as literals."""
    return Environment(
        loader=loader,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # neither HTML nor XML
    )
