"""A layout as DeepSpeed's JSON."""

import json

from meshfit.engines.deepspeed.write import layout_options
from meshfit.engines.handover import (
    RECOMPUTE_IN_MODEL,
    Files,
    Handover,
    header,
    names_checked,
    nested,
)
from meshfit.errors import InputError

CONFIG = "ds_config.json"

_PRECISIONS = {"bf16_mixed": "bf16", "fp16_mixed": "fp16", "fp32": None}


def export(given: Handover) -> Files:
    """``ds_config.json``, and ``README.txt``, since JSON has no comments.

    Raises:
        InputError: DeepSpeed's file cannot express the layout or the training.
    """
    training = given.training
    if training.precision.name not in _PRECISIONS:
        raise InputError(f"deepspeed: its file has no key for precision {training.precision.name}")
    config = nested(layout_options(given.layout, training.global_batch_size))
    config["train_batch_size"] = training.global_batch_size
    if training.max_grad_norm is not None:
        config["gradient_clipping"] = training.max_grad_norm
    if (precision := _PRECISIONS[training.precision.name]) is not None:
        config[precision] = {"enabled": True}
    notes = header(given, names_checked(given.profile))
    if given.layout.recompute == "full":
        notes.append(RECOMPUTE_IN_MODEL)
    return {CONFIG: json.dumps(config, indent=2) + "\n", "README.txt": "\n".join(notes) + "\n"}
