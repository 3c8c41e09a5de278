"""Model families: one module turns the configs of one ``model_type`` into a ``ModelSpec``.

To add a family:

1. Write ``families/NAME.py`` with ``read(name, config) -> ModelSpec``. Read every key through
   ``families.keys``, with the defaults of the family's config class in transformers. ``decoder``
   holds what Llama-like families share, ``sliding`` the window keys of Qwen.
2. Add one line to ``FAMILIES`` below.
3. Add a tiny config to ``tests/workload/families/test_against_transformers.py``; it compares
   defaults, and the parameters of a model on the meta device, with transformers.
"""

from collections.abc import Callable, Mapping
from typing import Any

from meshfit.errors import InputError, nearest_name
from meshfit.workload.families import gpt2, llama, mistral, qwen2, qwen3
from meshfit.workload.families.keys import shown
from meshfit.workload.model import ModelSpec

FAMILIES: Mapping[str, Callable[[str, Mapping[str, Any]], ModelSpec]] = {
    "gpt2": gpt2.read,
    "llama": llama.read,
    "mistral": mistral.read,
    "qwen2": qwen2.read,
    "qwen3": qwen3.read,
}
"""``model_type`` -> reader of its configs."""


def read_family(name: str, config: Mapping[str, Any]) -> ModelSpec:
    """The model that ``config`` describes; ``name`` is what the person called it.

    Raises:
        InputError: the family is not known, or a key of the config cannot be right.
    """
    try:
        return FAMILIES[_model_type(config)](name, config)
    except InputError as error:
        raise InputError(f"model {name}: {error}") from None


def _model_type(config: Mapping[str, Any]) -> str:
    known = ", ".join(FAMILIES)
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        found = "missing" if "model_type" not in config else shown(model_type)
        raise InputError(f"model_type is {found}; expected one of {known}")
    if model_type not in FAMILIES:
        nearest = nearest_name(model_type, FAMILIES)
        hint = f"; nearest: {nearest}" if nearest else ""
        raise InputError(f"model_type {shown(model_type)} is not known; known: {known}{hint}")
    if config.get("per_layer_config"):
        raise InputError("per_layer_config gives layers sizes of their own, which is not read yet")
    return model_type
