"""Fields of Megatron-Core's dataclasses, as YAML files and Megatron-Bridge set them, as arguments.

A field that is null is left out; a truth value is a flag; some fields are the opposite of a flag.
"""

from collections.abc import Iterator
from dataclasses import replace

from meshfit.engines.layout_options import Options, OptionValue
from meshfit.engines.syntax.setting import Setting

_NAMES = {
    "num_moe_experts": "--num-experts",
    "fp8": "--fp8-format",
    "num_layers_in_first_pipeline_stage": "--decoder-first-pipeline-num-layers",
    "num_layers_in_last_pipeline_stage": "--decoder-last-pipeline-num-layers",
    "virtual_pipeline_model_parallel_size": "--num-virtual-stages-per-pipeline-rank",
}
"""Fields whose argument is called otherwise."""

_OPPOSITES = {
    "add_bias_linear": "--disable-bias-linear",
    "gradient_accumulation_fusion": "--no-gradient-accumulation-fusion",
    "masked_softmax_fusion": "--no-masked-softmax-fusion",
    "overlap_p2p_comm": "--no-overlap-p2p-communication",
    "share_embeddings_and_output_weights": "--untie-embeddings-and-output-weights",
}
"""Fields that are on where the flag is left out."""

_ACTIVATIONS = {"swiglu": "--swiglu", "squaredrelu": "--squared-relu"}

_WHEN_LEFT_OUT: Options = {
    "--data-parallel-sharding-strategy": "no_shard",
    "--expert-model-parallel-size": 1,
    "--num-distributed-optimizer-instances": 1,
    "--ckpt-format": "torch_dist",
    **dict.fromkeys(
        (
            "--sequence-parallel",
            "--use-distributed-optimizer",
            "--use-megatron-fsdp",
            "--optimizer-cpu-offload",
            "--use-precision-aware-optimizer",
            "--fine-grained-activation-offloading",
        ),
        False,
    ),
}
"""Argument -> the value that a field has where the argument is left out; null for others."""

NULL = "null"


def as_arguments(field: str, setting: Setting) -> Iterator[tuple[str, Setting]]:
    """Arguments that say what ``setting`` of ``field`` says, each with that setting."""
    value = setting.value
    if value is None or value == NULL or isinstance(value, dict):
        return
    if field in _OPPOSITES:
        if not setting.is_on():
            yield _OPPOSITES[field], replace(setting, value=True)
    elif field == "activation_func":
        if str(value) in _ACTIVATIONS:
            yield _ACTIVATIONS[str(value)], replace(setting, value=True)
    elif field == "gated_linear_unit" and setting.is_on():
        yield "--swiglu", replace(setting, value=True)
    elif str(value).lower() != "false":
        if field == "num_query_groups":
            yield "--group-query-attention", replace(setting, value=True)
        plain = " ".join(map(str, value)) if isinstance(value, list) else value
        yield argument_of(field), replace(setting, value=plain)


def argument_of(field: str) -> str:
    """The argument that sets a field."""
    return _NAMES.get(field, f"--{field.replace('_', '-')}")


def field_of(argument: str) -> str:
    """The field that an argument sets."""
    names = {argument: field for field, argument in _NAMES.items()}
    return names.get(argument, argument.removeprefix("--").replace("-", "_"))


def as_field_value(argument: str, value: OptionValue) -> OptionValue:
    """The value that a file of fields has to say, where an argument may be left out."""
    return _WHEN_LEFT_OUT.get(argument, NULL) if value is None else value
