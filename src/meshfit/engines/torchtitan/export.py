"""A layout as torchtitan's configuration function."""

import re

from meshfit.engines.around.slurm import sbatch
from meshfit.engines.handover import (
    Files,
    Handover,
    header,
    host_script,
    names_checked,
    torchrun,
)
from meshfit.engines.torchtitan.read import MODELS
from meshfit.engines.torchtitan.write import python_options
from meshfit.errors import InputError

SCRIPT = "launch.sh"
FUNCTION = "layout"


def export(given: Handover) -> Files:
    """``titan_NAME.py`` with one function, ``launch.sh``, and ``launch.sbatch`` for several hosts.

    On stable PyTorch 2.13 the default back end of meshes refuses sharded parameters, so that
    ``partial_dtensor`` is asked for.

    Raises:
        InputError: the model is none of torchtitan's registry, or there is no field for a part of
            the layout.
    """
    family, flavor = _of_registry(given)
    module = f"titan_{re.sub(r'[^a-z0-9_]', '_', given.name.lower())}"
    registry = f"torchtitan.models.{family}.config_registry"
    base = f"{family}_{flavor.lower()}"
    options = python_options(given.layout, given.training.global_batch_size) | {
        "training.seq_len": given.training.sequence_length,
        "training.steps": given.steps,
        "parallelism.spmd_backend": "partial_dtensor",
        "training.disable_cuda_graphs": given.layout.pp > 1 or given.layout.ep > 1 or None,
    }
    comment = [f"# {line}" for line in header(given, names_checked(given.profile))]
    imports = [f"from {registry} import {base}", "from torchtitan.trainer import Trainer"]
    if options["activation_checkpoint"]:
        kind = str(options["activation_checkpoint"]).partition(".")[0]
        imports.insert(0, f"from torchtitan.distributed.activation_checkpoint import {kind}")
    body = [
        f"    config.{name} = {_python(name, value)}"
        for name, value in options.items()
        if value is not None or name == "activation_checkpoint"
    ]
    function = [
        f"def {FUNCTION}() -> Trainer.Config:",
        f"    config = {base}()",
        *body,
        "    return config",
    ]
    program = f"-m torchtitan.train --module {module} --config {FUNCTION}"
    launch = ["#!/bin/bash", *comment, 'cd "$(dirname "$0")" || exit', *torchrun(given, program)]
    files = {
        f"{module}.py": "\n".join([*comment, *imports, "", "", *function]) + "\n",
        SCRIPT: "\n".join(launch) + "\n",
    }
    if given.num_hosts > 1:
        files["launch.sbatch"] = sbatch(host_script(given, SCRIPT))
    return files


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
    """A value as Python; recomputation is an object, everything else a literal."""
    return str(value) if name == "activation_checkpoint" else repr(value)
