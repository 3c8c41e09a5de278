"""A model as it is served: with its own weights, or quantised in a common format."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meshfit.errors import InputError
from meshfit.workload.model import ModelSpec

AS_STORED = "auto"
"""As the model's config says."""

_KEPT_OF_EXPERTS = ["lm_head", "re:.*attn.*", "re:.*mixer.*", "re:.*linear_attn.*"]
"""What 4-bit checkpoints of mixtures of experts leave in 16 bits beside the usual."""


def _four_bits(config: dict[str, Any], model: ModelSpec) -> dict[str, Any]:
    return config | {"ignore": _KEPT_OF_EXPERTS if model.moe is not None else ["lm_head"]}


_CONFIGS: Mapping[str, dict[str, Any] | None] = {
    "bf16": None,
    "fp8": {"quant_method": "fp8"},
    "fp8_block": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128},
    "gptq_int8": {"quant_method": "gptq", "bits": 8, "group_size": 128},
}
_FOUR_BITS: Mapping[str, dict[str, Any]] = {
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    "mxfp4": {"quant_method": "modelopt", "quant_algo": "MXFP4"},
    "int4_experts": {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32},
            }
        },
    },
}
WEIGHT_FORMATS: tuple[str, ...] = (AS_STORED, *_CONFIGS, *_FOUR_BITS)
"""What ``quantization.weights`` of a job may say."""


def served_as(model: ModelSpec, weights: str) -> ModelSpec:
    """``model`` with its linear maps in a format of ``WEIGHT_FORMATS``, embedding and head in 16
    bits; 4-bit floats leave a mixture of experts' attention in 16 bits, as published checkpoints do.

    Raises:
        InputError: no such format.
    """
    if weights == AS_STORED:
        return model
    if weights not in WEIGHT_FORMATS:
        known = ", ".join(WEIGHT_FORMATS)
        raise InputError(f"quantization.weights {weights!r} is none of {known}")
    config = {key: value for key, value in model.config.items() if key != "quantization_config"}
    if weights in _FOUR_BITS:
        config["quantization_config"] = _four_bits(_FOUR_BITS[weights], model)
    elif (own := _CONFIGS[weights]) is not None:
        config["quantization_config"] = own
    return replace(model, config=config)
