"""A training program to start under Accelerate's exported YAML: transformers' Trainer on the job's data."""

import json
from collections.abc import Mapping
from functools import cache

from jinja2 import ChoiceLoader, Environment, PackageLoader

from meshfit.engines.handover import Files, Handover
from meshfit.engines.native.files import data_values, environment, quoted, trained_config
from meshfit.engines.training_parts import ANY, Said, require_said
from meshfit.errors import InputError

PROGRAM = "train.py"
SEED = 0

_OPTIMIZERS: Mapping[str, str] = {"adamw": "adamw_torch_fused", "sgd": "sgd"}
_MIXED: Mapping[str, str | None] = {"bf16_mixed": "bf16", "fp16_mixed": "fp16", "fp32": None}

_SAID: Said = {
    "workload.precision": tuple(_MIXED),
    "workload.optimizer": tuple(_OPTIMIZERS),
    "workload.learning_rate": ANY,
    "workload.weight_decay": ANY,
    "workload.max_grad_norm": ANY,
    "runtime.compile": (False,),
}


def program(given: Handover, weights: str | None) -> Files:
    """``train.py`` and the model's ``config.json``.

    Args:
        weights: folder of safetensors to start from; None: random ones.

    Raises:
        InputError: the Trainer has no setting for a part of the training.
    """
    layout, training = given.layout, given.training
    require_said("accelerate", training, _SAID)
    if training.data.source == "documents":
        raise InputError(
            "accelerate: the program has no packed documents; use data.source text or synthetic"
        )
    values = data_values(training.data) | {
        "label": layout.label,
        "version": given.profile.version,
        "weights": quoted(weights) if weights else None,
        "steps": given.steps,
        "seed": SEED,
        "training": training,
        "micro_batch_size": layout.micro_batch_size,
        "num_micro_batches": layout.num_micro_batches(training.global_batch_size),
        "optimizer": _OPTIMIZERS[training.optimizer],
        "mixed": _MIXED[training.precision.name],
        "recompute": layout.recompute == "full" and layout.dp_shard == 1,
        "on_cpu": given.topology.accelerator.device_type == "cpu",
    }
    config = trained_config(given.model.config)
    return {
        PROGRAM: _environment().get_template("train.py.j2").render(values),
        "config.json": json.dumps(config, indent=2) + "\n",
    }


@cache
def _environment() -> Environment:
    own, shared = (PackageLoader(f"meshfit.engines.{name}") for name in ("accelerate", "native"))
    return environment(ChoiceLoader([own, shared]))
