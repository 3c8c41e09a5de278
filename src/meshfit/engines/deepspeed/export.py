"""A layout as DeepSpeed's JSON."""

import json

from meshfit.engines.deepspeed.write import GRADIENT_BYTES, layout_options
from meshfit.engines.handover import (
    RECOMPUTE_IN_MODEL,
    Files,
    Handover,
    header,
    names_checked,
    nested,
)
from meshfit.engines.training_parts import (
    ANY,
    OF_THE_SCRIPT,
    Said,
    left_to_the_script,
    require_said,
)

CONFIG = "ds_config.json"

_PRECISIONS = {"bf16_mixed": "bf16", "fp16_mixed": "fp16", "fp32": None}

SAID: Said = {
    "workload.precision": tuple(_PRECISIONS),
    "workload.max_grad_norm": ANY,
    "runtime.overlap_gradients": ANY,
    "runtime.bucket": ANY,
}


def export(given: Handover) -> Files:
    """``ds_config.json``, and ``README.txt``, since JSON has no comments.

    Raises:
        InputError: DeepSpeed's file cannot express the layout or the training.
    """
    training = given.training
    require_said("deepspeed", training, {**OF_THE_SCRIPT, **SAID})
    runtime = training.runtime
    options = layout_options(given.layout, training.global_batch_size) | {
        "zero_optimization.overlap_comm": runtime.overlap_gradients,
        "zero_optimization.reduce_bucket_size": runtime.bucket_bytes
        and runtime.bucket_bytes // GRADIENT_BYTES,
    }
    config = nested(options)
    config["train_batch_size"] = training.global_batch_size
    if training.max_grad_norm is not None:
        config["gradient_clipping"] = training.max_grad_norm
    if (precision := _PRECISIONS[training.precision.name]) is not None:
        config[precision] = {"enabled": True}
    notes = header(given, names_checked(given.profile))
    notes.append(left_to_the_script(training, SAID))
    if given.layout.recompute == "full":
        notes.append(RECOMPUTE_IN_MODEL)
    return {CONFIG: json.dumps(config, indent=2) + "\n", "README.txt": "\n".join(notes) + "\n"}
