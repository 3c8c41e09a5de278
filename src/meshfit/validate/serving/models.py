"""The model of a row of measured servers, quantised as the row says."""

import re
from dataclasses import replace
from functools import cache

from meshfit.errors import InputError
from meshfit.serve.setting.quantized import AS_STORED, served_as
from meshfit.validate.rows import NotModelledError
from meshfit.workload.families import read_family
from meshfit.workload.model import ModelSpec
from meshfit.workload.models import catalogue, read_model

_SAME_SIZES: dict[str, str] = {
    "deepseek-r1": "deepseek-v3",
    "deepseek-v3.1": "deepseek-v3",
    "kimi-k2.5": "kimi-k2",
    "llama-3.3-70b": "llama-3.1-70b",
}
"""Models that share their sizes with one of the catalogue."""

_BY_DEFAULTS: dict[str, str] = {"minimax-m2": "minimax_m2", "minimax-m2.5": "minimax_m2"}
"""Models whose sizes are the defaults of transformers' config class."""

_SUFFIXES = re.compile(
    r"-(instruct|chat|base|it|hf|fp8|nvfp4|fp4|awq|gptq|dynamic|0528|0324|2507)$"
)

_FORMATS: dict[str, str] = {
    "": "bf16",
    "fp8": "fp8",
    "fp8_static": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "nvfp4",
    "int4_wo": "awq",
    "int8_wo": "gptq_int8",
    "bfloat16": "bf16",
}


@cache
def served_model(name: str, linear_mode: str, expert_mode: str) -> ModelSpec:
    """The language model of that name, its weights in the row's modes.

    A model whose own checkpoint is quantised to as many bits keeps its own format. Towers are left
    out: no row has images.

    Raises:
        NotModelledError: neither the catalogue nor a family's defaults have it, or the mode is not
            known.
    """
    model = _named(name)
    weights = _weights(model, linear_mode, expert_mode)
    try:
        return replace(served_as(model, weights), towers=())
    except InputError as error:
        raise NotModelledError(str(error)) from None


def _weights(model: ModelSpec, linear_mode: str, expert_mode: str) -> str:
    mode = expert_mode if model.moe is not None and expert_mode else linear_mode
    own = model.config.get("quantization_config")
    method = own.get("quant_method") if isinstance(own, dict) else None
    if mode in ("fp8", "fp8_block") and method == "fp8":
        return AS_STORED
    if method == "mxfp4":
        return AS_STORED
    if mode not in _FORMATS:
        raise NotModelledError(f"quantisation not known: {mode}")
    if mode == "int4_wo" and model.moe is not None:
        return "int4_experts"
    return _FORMATS[mode]


@cache
def _named(name: str) -> ModelSpec:
    try:
        return read_model(name)
    except InputError:
        pass
    short = name.rpartition("/")[2].lower().removeprefix("meta-")
    while (shorter := _SUFFIXES.sub("", short)) != short:
        short = shorter
    if short in _BY_DEFAULTS:
        return read_family(short, {"model_type": _BY_DEFAULTS[short]})
    short = _SAME_SIZES.get(short, short)
    if short not in catalogue():
        raise NotModelledError(f"model not in the catalogue: {name}")
    return read_model(short)
