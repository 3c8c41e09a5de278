"""A layout as a recipe of Megatron-Bridge 0.6 with what it sets otherwise."""

import re
from dataclasses import replace

from meshfit.engines.around.slurm import sbatch
from meshfit.engines.handover import (
    Files,
    Handover,
    header,
    host_script,
    names_checked,
    torchrun,
)
from meshfit.engines.layout_options import Options
from meshfit.engines.megatron.fields import NULL
from meshfit.engines.megatron_bridge.recipes import Recipe, recipes
from meshfit.engines.megatron_bridge.write import layout_options
from meshfit.errors import InputError
from meshfit.workload.models import repository_of
from meshfit.workload.training import TrainingSpec

SCRIPT = "launch.sh"
RELEASE = ("megatron-bridge", "0.6.2")

_PRECISIONS = {
    "bf16_mixed": "bf16_mixed",
    "fp16_mixed": "fp16_mixed",
    "fp8_mixed": "bf16_with_fp8_delayed_scaling_mixed",
}
_FP8_RECIPES = {
    "tensorwise": "bf16_with_fp8_current_scaling_mixed",
    "blockwise": "bf16_with_fp8_subchannel_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
}


def export(given: Handover) -> Files:
    """``bridge_NAME.py``, ``launch.sh``, and ``launch.sbatch`` for several hosts. It trains on mock data.

    Raises:
        InputError: no recipe of the model is known, or there is no field for a part of the layout or of
            the training.
    """
    recipe = _recipe(given)
    name, version = RELEASE
    told = replace(given, profile=replace(given.profile, name=name, version=version))
    comment = [f"# {line}" for line in header(told, names_checked(told.profile))]
    module = f"bridge_{re.sub(r'[^a-z0-9_]', '_', given.name.lower())}.py"
    body = [
        f"from {recipe.module} import {recipe.name}",
        "from megatron.bridge.training.gpt_step import forward_step",
        "from megatron.bridge.training.pretrain import pretrain",
        "",
        "",
        "def layout():",
        f"    config = {recipe.name}()",
        *(f"    config.{key} = {_python(value)}" for key, value in fields(given).items()),
        "    return config",
        "",
        "",
        'if __name__ == "__main__":',
        "    pretrain(config=layout(), forward_step_func=forward_step)",
    ]
    connections = 8 if given.layout.zero_stage >= 2 else 1
    launch = [
        "#!/bin/bash",
        *comment,
        'cd "$(dirname "$0")" || exit',
        f"export CUDA_DEVICE_MAX_CONNECTIONS={connections}",
        *torchrun(given, module),
    ]
    files = {
        module: "\n".join([*comment, *body]) + "\n",
        SCRIPT: "\n".join(launch) + "\n",
    }
    if given.num_hosts > 1:
        files["launch.sbatch"] = sbatch(host_script(given, SCRIPT))
    return files


def fields(given: Handover) -> Options:
    """Every field that the layout and the training decide."""
    batch = given.training.global_batch_size
    return {**layout_options(given.layout, batch), **_training(given.training, given.steps)}


def _training(training: TrainingSpec, steps: int) -> Options:
    """
    Raises:
        InputError: the precision, the optimizer or the method is none that a field says.
    """
    runtime, name = training.runtime, training.precision.name
    if name not in _PRECISIONS or training.optimizer != "adamw" or training.adapter:
        raise InputError(
            f"megatron_bridge: precision {name}, optimizer {training.optimizer} and adapters="
            f"{training.adapter is not None} are not written; mixed precision and adamw are"
        )
    if runtime.overlap_tensor_parallel:
        raise InputError(
            "megatron_bridge: runtime.overlap_tensor_parallel needs communicators of its comm_overlap, "
            "which are not written"
        )
    precision = _FP8_RECIPES.get(runtime.fp8_recipe or "", _PRECISIONS[name])
    return {
        "model.seq_length": training.sequence_length,
        "dataset.seq_length": training.sequence_length,
        "train.train_iters": steps,
        "ddp.overlap_grad_reduce": bool(runtime.overlap_gradients),
        "ddp.overlap_param_gather": bool(runtime.overlap_parameters),
        "mixed_precision": precision if name == "fp8_mixed" else _PRECISIONS[name],
    }


def _recipe(given: Handover) -> Recipe:
    """The plainest recipe that trains the model from the start."""
    repository = (repository_of(given.model.name) or "").lower()
    found = [
        recipe
        for recipe in recipes().values()
        if recipe.repository.lower() == repository and "_pretrain_" in recipe.name
    ]
    if not found:
        known = sorted({one.repository for one in recipes().values()})
        raise InputError(
            f"megatron_bridge: no recipe of {given.model.name} is known; they are of {', '.join(known)}"
        )
    return min(found, key=lambda one: len(one.name))


def _python(value: object) -> str:
    return "None" if value in (None, NULL) else repr(value)
