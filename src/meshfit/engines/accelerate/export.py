"""A layout as Accelerate's YAML."""

from meshfit.engines.accelerate.write import layout_options
from meshfit.engines.around.script import commented, manifest
from meshfit.engines.handover import (
    RECOMPUTE_IN_MODEL,
    Files,
    Handover,
    header,
    names_checked,
    nested,
)
from meshfit.engines.training_parts import (
    OF_THE_SCRIPT,
    Said,
    left_to_the_script,
    require_said,
)

CONFIG = "accelerate.yaml"

_PRECISIONS = {"bf16_mixed": "bf16", "fp16_mixed": "fp16", "fp8_mixed": "fp8", "fp32": "no"}

SAID: Said = {"workload.precision": tuple(_PRECISIONS)}


def export(given: Handover) -> Files:
    """``accelerate.yaml``. Batches are the training script's: a comment says which.

    Raises:
        InputError: Accelerate's file cannot express the layout or the training.
    """
    layout, training = given.layout, given.training
    require_said("accelerate", training, {**OF_THE_SCRIPT, **SAID})
    options = nested(layout_options(layout, training.global_batch_size))
    shards = "fsdp_config" in options
    config = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": options.pop("distributed_type"),
        "mixed_precision": _PRECISIONS[training.precision.name],
        "num_machines": given.num_hosts,
        "num_processes": layout.world_size,
        **options,
    }
    if shards:
        config["fsdp_config"] = {
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            **options["fsdp_config"],  # type: ignore[dict-item]
        }
    lines = header(given, names_checked(given.profile))
    lines.append(
        f"In the script: {layout.micro_batch_size} sequences of {training.sequence_length} tokens a "
        f"micro-batch, {layout.num_micro_batches(training.global_batch_size)} accumulated."
    )
    lines.append(left_to_the_script(training, SAID))
    if given.num_hosts > 1:
        lines.append(
            "On every host: accelerate launch with --machine_rank, --main_process_ip and "
            "--main_process_port."
        )
    if layout.recompute == "full" and not shards:
        lines.append(RECOMPUTE_IN_MODEL)
    return {CONFIG: manifest(commented(lines), config)}
