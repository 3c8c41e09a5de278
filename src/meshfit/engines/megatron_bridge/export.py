"""A layout as a recipe of Megatron-Bridge 0.6 with what it sets otherwise."""

from dataclasses import replace

from meshfit.engines.handover import Files, Handover, comment, launch_script, module_name
from meshfit.engines.layout_options import Options, OptionValue
from meshfit.engines.megatron.export import recompute_modules
from meshfit.engines.megatron.fields import NULL
from meshfit.engines.megatron_bridge.recipes import Recipe, recipes
from meshfit.engines.megatron_bridge.write import layout_options
from meshfit.engines.training_parts import ANY, Said, require_said
from meshfit.errors import InputError
from meshfit.workload.models import repository_of
from meshfit.workload.training import TrainingSpec

SCRIPT = "launch.sh"
RELEASE = ("megatron-bridge", "0.6.2")

_MODULES = "model.recompute_modules"
"""A list, where a command line has words."""

_PRECISIONS = {
    "bf16_mixed": "bf16_mixed",
    "fp16_mixed": "fp16_mixed",
    "fp8_mixed": "bf16_with_fp8_delayed_scaling_mixed",
}
_FP8_RECIPES = {
    "delayed": _PRECISIONS["fp8_mixed"],
    "tensorwise": "bf16_with_fp8_current_scaling_mixed",
    "blockwise": "bf16_with_fp8_subchannel_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
}

SAID: Said = {
    "workload.precision": tuple(_PRECISIONS),
    "workload.optimizer": ("adamw",),
    "workload.learning_rate": ANY,
    "workload.weight_decay": ANY,
    "workload.max_grad_norm": ANY,
    "runtime.compile": (False,),
    "runtime.loss": ("plain", "fused"),
    "runtime.allocator": ANY,
    "runtime.fp8_recipe": tuple(_FP8_RECIPES),
    "runtime.attention_dropout": ANY,
    "runtime.hidden_dropout": ANY,
    "runtime.overlap_gradients": ANY,
    "runtime.overlap_parameters": ANY,
    "runtime.overlap_tensor_parallel": (False,),
    "runtime.fused_gradient_accumulation": ANY,
    "runtime.expert_capacity_factor": ANY,
}
"""``overlap_tensor_parallel`` would need the communicators of its ``comm_overlap``."""


def export(given: Handover) -> Files:
    """``bridge_NAME.py`` and ``launch.sh``. It trains on mock data.

    Raises:
        InputError: no recipe of the model is known, or there is no field for a part of the layout or of
            the training.
    """
    recipe, told = _recipe(given), released(given)
    module = f"{module_name('bridge', given.name)}.py"
    body = [
        "# Data is mock data: put yours in.",
        f"from {recipe.module} import {recipe.name}",
        "from megatron.bridge.training.gpt_step import forward_step",
        "from megatron.bridge.training.pretrain import pretrain",
        "",
        "",
        "def layout():",
        f"    config = {recipe.name}()",
        *(f"    config.{key} = {_python(key, value)}" for key, value in fields(given).items()),
        "    return config",
        "",
        "",
        'if __name__ == "__main__":',
        "    pretrain(config=layout(), forward_step_func=forward_step)",
    ]
    connections = 8 if given.layout.zero_stage >= 2 else 1
    before = [f"export CUDA_DEVICE_MAX_CONNECTIONS={connections}"]
    return {
        module: "\n".join([*comment(told), *body, ""]),
        SCRIPT: launch_script(told, module, before),
    }


def released(given: Handover) -> Handover:
    """``given`` with the name and the version of this library in place of the profile's."""
    name, version = RELEASE
    return replace(given, profile=replace(given.profile, name=name, version=version))


def fields(given: Handover) -> Options:
    """Every field that the layout and the training decide."""
    batch = given.training.global_batch_size
    return {
        **layout_options(given.layout, batch),
        _MODULES: recompute_modules(given.layout, given.model),
        **_training(given.training, given.steps),
    }


def _training(training: TrainingSpec, steps: int) -> Options:
    """
    Raises:
        InputError: no field says a part of it.
    """
    require_said("megatron_bridge", training, SAID)
    runtime, name = training.runtime, training.precision.name
    is_fp8 = name == "fp8_mixed"
    stated: Options = {
        "model.attention_dropout": runtime.attention_dropout,
        "model.hidden_dropout": runtime.hidden_dropout,
        "model.gradient_accumulation_fusion": runtime.fused_gradient_accumulation,
        "model.cross_entropy_loss_fusion": runtime.loss and runtime.loss == "fused",
        "model.moe_expert_capacity_factor": runtime.expert_capacity_factor,
    }
    return {
        "model.seq_length": training.sequence_length,
        "dataset.seq_length": training.sequence_length,
        "train.train_iters": steps,
        "ddp.overlap_grad_reduce": bool(runtime.overlap_gradients),
        "ddp.overlap_param_gather": bool(runtime.overlap_parameters),
        "mixed_precision": _FP8_RECIPES[runtime.fp8_recipe or "delayed"]
        if is_fp8
        else _PRECISIONS[name],
        "optimizer.lr": training.learning_rate,
        "optimizer.min_lr": training.learning_rate,
        "optimizer.weight_decay": training.weight_decay,
        "optimizer.clip_grad": training.max_grad_norm or 0.0,
        "scheduler.start_weight_decay": training.weight_decay,
        "scheduler.end_weight_decay": training.weight_decay,
        "scheduler.lr_decay_style": "constant",
        "scheduler.lr_decay_iters": steps,
        "scheduler.lr_warmup_iters": 0,
        **{key: value for key, value in stated.items() if value is not None},
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


def _python(key: str, value: OptionValue) -> str:
    if value in (None, NULL):
        return "None"
    return repr(str(value).split() if key == _MODULES else value)
