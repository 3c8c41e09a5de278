"""MiMo: Qwen2 with heads for multi-token prediction."""

from dataclasses import replace

from meshfit.workload.families import qwen2
from meshfit.workload.families.keys import Config
from meshfit.workload.families.mtp import with_mtp
from meshfit.workload.model import ModelSpec


def read(name: str, config: Config) -> ModelSpec:
    """The model; each head for multi-token prediction is one more of its layers.

    Raises:
        InputError: a key cannot be right.
    """
    model = replace(qwen2.read(name, config), model_type="mimo")
    return with_mtp(model, config, "num_nextn_predict_layers")
