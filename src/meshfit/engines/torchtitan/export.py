"""A layout as torchtitan's configuration function."""

from meshfit.engines.handover import Files, Handover, comment, launch_script, module_name
from meshfit.engines.layout_options import Options
from meshfit.engines.torchtitan.read import MODELS
from meshfit.engines.torchtitan.write import python_options
from meshfit.engines.training_parts import ANY, Said, require_said
from meshfit.errors import InputError
from meshfit.workload.training import TrainingSpec

SCRIPT = "launch.sh"
FUNCTION = "layout"

_PRECISIONS: dict[str, Options] = {
    "bf16_mixed": {},
    "fp32": {"training.mixed_precision_param": "float32"},
    "bf16": {"training.dtype": "bfloat16"},
}

SAID: Said = {
    "workload.precision": tuple(_PRECISIONS),
    "workload.optimizer": ("adamw",),
    "workload.learning_rate": ANY,
    "workload.weight_decay": ANY,
    "workload.max_grad_norm": ANY,
    "runtime.compile": ANY,
    "runtime.allocator": ANY,
    "runtime.overlap_gradients": (True,),
    "runtime.overlap_parameters": (True,),
    "runtime.overlap_tensor_parallel": ANY,
}

_NOTE = "# Data is the registry's: put yours in."

_CLIPS_NOTHING = 1e9
"""A norm that no gradient has: clipping has no switch."""

_OPTIMIZER = """\
OptimizersContainer.Config(
        param_groups=[
            ParamGroupConfig(
                pattern=".*",
                optimizer_name="AdamW",
                optimizer_kwargs={kwargs},
            )
        ]
    )"""

_OBJECTS = ("activation_checkpoint", "optimizer")
"""Fields that take an object; all others take a literal."""


def export(given: Handover) -> Files:
    """``titan_NAME.py`` with one function, and ``launch.sh``. It trains on the registry's data.

    On stable PyTorch 2.13 the default back end of meshes refuses sharded parameters, so that
    ``partial_dtensor`` is asked for.

    Raises:
        InputError: the model is none of torchtitan's registry, or there is no field for a part of
            the layout or of the training.
    """
    family, flavor = _of_registry(given)
    module, base = module_name("titan", given.name), f"{family}_{flavor.lower()}"
    options = python_options(given.layout, given.training.global_batch_size) | {
        "training.seq_len": given.training.sequence_length,
        "training.steps": given.steps,
        "parallelism.spmd_backend": "partial_dtensor",
        "training.disable_cuda_graphs": given.layout.pp > 1 or given.layout.ep > 1 or None,
        **_training_options(given.training, compiles=given.compiles),
    }
    function = [
        f"def {FUNCTION}() -> Trainer.Config:",
        f"    config = {base}()",
        *(
            f"    config.{name} = {_python(name, value)}"
            for name, value in options.items()
            if value is not None or name == "activation_checkpoint"
        ),
        "    return config",
    ]
    imports = _imports(f"torchtitan.models.{family}.config_registry", base, options)
    program = f"-m torchtitan.train --module {module} --config {FUNCTION}"
    return {
        f"{module}.py": "\n".join([*comment(given), _NOTE, *imports, "", "", *function, ""]),
        SCRIPT: launch_script(given, program),
    }


def _training_options(training: TrainingSpec, *, compiles: bool) -> Options:
    """Fields that the training decides, where layers go through ``torch.compile`` or not.

    Raises:
        InputError: there is none for a part of it.
    """
    require_said("torchtitan", training, SAID)
    runtime = training.runtime
    if runtime.overlap_tensor_parallel and not compiles:
        raise InputError("torchtitan: runtime.overlap_tensor_parallel needs runtime.compile")
    kwargs = {"lr": training.learning_rate, "weight_decay": training.weight_decay}
    return {
        **_PRECISIONS[training.precision.name],
        "training.max_norm": training.max_grad_norm or _CLIPS_NOTHING,
        "optimizer": _OPTIMIZER.format(kwargs=kwargs),
        "compile.enable": compiles,
        "compile.enable_async_tensor_parallel": runtime.overlap_tensor_parallel or None,
    }


def _imports(registry: str, base: str, options: Options) -> list[str]:
    lines = [
        "from torchtitan.components.optimizer import OptimizersContainer, ParamGroupConfig",
        f"from {registry} import {base}",
        "from torchtitan.trainer import Trainer",
    ]
    if options["activation_checkpoint"]:
        kind = str(options["activation_checkpoint"]).partition(".")[0]
        lines.insert(1, f"from torchtitan.distributed.activation_checkpoint import {kind}")
    return lines


def _of_registry(given: Handover) -> tuple[str, str]:
    """Name and flavour of the model."""
    for registered, name in MODELS.items():
        if name == given.model.name:
            return registered
    known = ", ".join(sorted(set(MODELS.values())))
    raise InputError(
        f"torchtitan: {given.model.name} is no model of its registry that is known here ({known})"
    )


def _python(name: str, value: object) -> str:
    return str(value) if name in _OBJECTS else repr(value)
